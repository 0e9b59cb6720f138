"""Steps that all ranks take together, and that fail on all ranks if they fail on one."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from traceback import StackSummary, extract_tb
from typing import TypeVar

from weft._base.guards import is_tuple
from weft._base.types import Result
from weft.distributed._group import ProcessGroup
from weft.distributed._objects import gather_object, scatter_object_list
from weft.errors import CheckpointError, CheckpointException

T = TypeVar("T")
R = TypeVar("R")
Failure = tuple[BaseException, StackSummary]

COORDINATOR = 0


class StepExchange:
    """What the ranks of a group do together; without a group, this process is the only rank."""

    def __init__(self, group: ProcessGroup | None) -> None:
        self._group = group
        self.rank = 0 if group is None else group.rank()
        self.size = 1 if group is None else group.size()
        self.is_coordinator = self.rank == COORDINATOR

    def agree(self, what: str, local: Callable[[], T], combine: Callable[[list[T]], Sequence[R]]) -> R:
        """This rank's entry of `combine(results)`, which the coordinator calls with the results of `local()` by rank.

        If either raises on any rank, all ranks raise `CheckpointException`, whose text begins with `what`. So every
        rank comes to the end of a step, and none waits for one that has failed.
        """
        outcome = _outcome(local)
        gathered = self._gathered(outcome)
        answers = None if gathered is None else self._answers(what, gathered, combine)
        answer = self._scattered(answers)
        if isinstance(answer, CheckpointException):
            raise answer
        return answer

    def _answers(
        self, what: str, gathered: list[bytes], combine: Callable[[list[Result]], Sequence[Result]]
    ) -> list[bytes]:
        outcomes = [pickle.loads(entry) for entry in gathered]
        failures = {rank: outcome for rank, outcome in enumerate(outcomes) if _is_failure(outcome)}
        if not failures:
            try:
                return _packed(combine(outcomes))
            except BaseException as error:
                failures = {self.rank: failure_of(error)}
        return [pickle.dumps(CheckpointException(what, failures))] * self.size

    def _gathered(self, outcome: bytes) -> list[bytes] | None:
        if self._group is None:
            return [outcome]
        outcomes: list[bytes] | None = [b""] * self.size if self.is_coordinator else None
        gather_object(outcome, outcomes, group=self._group, group_dst=COORDINATOR)
        return outcomes

    def _scattered(self, answers: list[bytes] | None) -> Result:
        if self._group is None:
            assert answers is not None, "the only rank is the coordinator"
            return pickle.loads(answers[0])
        answer: list[bytes] = [b""]
        scatter_object_list(answer, answers, group=self._group, group_src=COORDINATOR)
        return pickle.loads(answer[0])


def _packed(answers: Sequence[object]) -> list[bytes]:
    """The pickles of all ranks' answers; one that several ranks get is pickled once."""
    distinct = {id(answer): answer for answer in answers}
    pickles = {key: pickle.dumps(answer) for key, answer in distinct.items()}
    return [pickles[id(answer)] for answer in answers]


def _outcome(function: Callable[[], object]) -> bytes:
    """The pickle of what a function returns, or of its failure."""
    try:
        return pickle.dumps(function())
    except BaseException as error:
        return pickle.dumps(failure_of(error))


def failure_of(error: BaseException) -> Failure:
    """An exception that can be sent, and its traceback."""
    frames = [(frame.filename, frame.lineno or 0, frame.name, frame.line) for frame in extract_tb(error.__traceback__)]
    try:
        # Both ways: many classes of users can be pickled and fail only when they are made anew, on the coordinator.
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever the exception's class does when it is made anew
        error = CheckpointError(f"{type(error).__name__}: {error}")
    return error, StackSummary.from_list(frames)


def _is_failure(outcome: object) -> bool:
    return is_tuple(outcome) and len(outcome) == 2 and isinstance(outcome[1], StackSummary)
