"""Saves in the background: one at a time for the ranks of a group."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from weakref import WeakKeyDictionary

from weft._base.types import Result
from weft.distributed._group import ProcessGroup
from weft.distributed._objects import recv_object_list, send_object_list
from weft.distributed._world import new_group, rank_setter
from weft.distributed.checkpoint._exchange import COORDINATOR, R, StepExchange, T
from weft.errors import DistError

_log = logging.getLogger(__name__)


class Background:
    """The thread of one rank that saves. The ranks' threads have a group of their own, beside that of the training."""

    def __init__(self, group: ProcessGroup | None) -> None:
        self._ranks = None if group is None else list(group.ranks)
        self._timeout = None if group is None else group.timeout
        self._exchange: StepExchange | None = None
        self._future: Future[Result] | None = None

    def wait(self) -> None:
        """Wait for the end of the save that is running, if there is one, whatever comes of it."""
        if self._future is not None:
            wait([self._future])

    def start(self, save: Callable[[StepExchange], Result]) -> Future[Result]:
        """The future of a save in a new thread. The interpreter waits for it before it ends."""
        if self._exchange is None:
            self._exchange = StepExchange(None) if self._ranks is None else _exchange_of(self._new_group())
        future = self._future = Future()
        future.set_running_or_notify_cancel()
        target, arguments = _run, (save, self._exchange, rank_setter(), future)
        threading.Thread(target=target, args=arguments, name="weft async_save", daemon=False).start()
        return future

    def _new_group(self) -> ProcessGroup:
        return new_group(
            self._ranks, self._timeout, use_local_synchronization=True, group_desc="async_save", sort_ranks=False
        )


class _MessageExchange(StepExchange):
    """An exchange by messages, for backends that run the collectives of all their groups in one order."""

    def __init__(self, group: ProcessGroup) -> None:
        super().__init__(group)
        self._messages = group

    def agree(self, what: str, local: Callable[[], T], combine: Callable[[list[T]], Sequence[R]]) -> R:
        try:
            return super().agree(what, local, combine)
        except DistError as error:
            self._messages.abort(str(error))  # the others may wait for messages of this rank
            raise

    def _gathered(self, outcome: bytes) -> list[bytes] | None:
        if not self.is_coordinator:
            self._send(outcome, COORDINATOR)
            return None
        return [outcome if rank == COORDINATOR else self._receive(rank) for rank in range(self.size)]

    def _scattered(self, answers: list[bytes] | None) -> Result:
        if answers is None:
            return pickle.loads(self._receive(COORDINATOR))
        for rank, answer in enumerate(answers):
            if rank != COORDINATOR:
                self._send(answer, rank)
        return pickle.loads(answers[COORDINATOR])

    def _send(self, content: bytes, rank: int) -> None:
        send_object_list([content], group=self._messages, group_dst=rank)

    def _receive(self, rank: int) -> bytes:
        contents: list[Result] = [None]
        recv_object_list(contents, group=self._messages, group_src=rank)
        return contents[0]


def _exchange_of(group: ProcessGroup) -> StepExchange:
    return _MessageExchange(group) if group.own_backend.one_order else StepExchange(group)


def _run(
    save: Callable[[StepExchange], Result],
    exchange: StepExchange,
    enter_rank: Callable[[], None],
    future: Future[Result],
) -> None:
    enter_rank()
    try:
        result = save(exchange)
    except BaseException as error:
        _log.error("async_save has failed: %s", error)
        future.set_exception(error)
    else:
        future.set_result(result)


# no cell: files are not written in a captured function
_alone = Background(None)
# no cell: files are not written in a captured function
_backgrounds: WeakKeyDictionary[ProcessGroup, Background] = WeakKeyDictionary()


def background_of(group: ProcessGroup | None) -> Background:
    """The background of the ranks of a group; without a group, that of this process."""
    return _alone if group is None else _backgrounds.setdefault(group, Background(group))
