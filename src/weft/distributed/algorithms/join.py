"""Uneven inputs: a rank that has no data left takes part in the collectives of the others."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

from weft._base.device import device
from weft._base.types import Arg
from weft._tensor.convert import tensor
from weft.distributed import _collectives
from weft.distributed._group import ProcessGroup
from weft.distributed._work import Work
from weft.errors import DistError, PreconditionError, ValueRangeError

_MUCH_SKEW = 1000  # iterations


class JoinHook:
    """The actions of a rank without data for one `Joinable`."""

    def main_hook(self) -> None:
        """Take part in the collectives of one iteration of the others."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called once when no rank has data left; `is_last_joiner` is True on the ranks that had data longest."""


class _JoinConfig(NamedTuple):
    """The `Join` context of a `Joinable`, as far as it must know it."""

    enable: bool = False
    throw_on_early_termination: bool = False
    is_first_joinable: bool = False


class Joinable(ABC):
    """A class whose collectives a rank without data can take part in."""

    @abstractmethod
    def __init__(self) -> None:
        super().__init__()
        self._join_config = _JoinConfig()

    def enter_join(self, config: _JoinConfig) -> None:
        """Note in which `Join` context this takes part."""
        self._join_config = config

    @abstractmethod
    def join_hook(self, **kwargs: Arg) -> JoinHook:
        """The hook; `kwargs` are those given to `Join`."""

    @property
    @abstractmethod
    def join_device(self) -> device:
        """The device of tensors in the context's own collectives."""

    @property
    @abstractmethod
    def join_process_group(self) -> ProcessGroup:
        """The group of the context's own collectives."""


class Join:
    """A context around a training loop whose ranks have different numbers of inputs.

    A rank that leaves the loop runs the main hooks of `joinables`, in order, until no rank has data left, and then
    their post hooks. With `throw_on_early_termination`, all ranks raise `RuntimeError` as soon as one rank has left.
    `kwargs` are passed to the hooks. `ValueError` if the joinables have different process groups.
    """

    def __init__(
        self,
        joinables: Sequence[Joinable],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Arg,
    ) -> None:
        if not joinables:
            raise ValueRangeError("The join context manager requires at least one joinable")
        groups = [joinable.join_process_group for joinable in joinables]
        if any(group is not groups[0] for group in groups):
            raise ValueRangeError("Using join context manager with multiple process groups")
        self._joinables = list(joinables)
        self._hooks = [joinable.join_hook(**kwargs) for joinable in joinables]
        self._enable = enable
        self._throws = throw_on_early_termination
        self._group: ProcessGroup = groups[0]
        self._device = joinables[0].join_device
        for at, joinable in enumerate(joinables):
            joinable.enter_join(_JoinConfig(enable, throw_on_early_termination, at == 0))

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._enable and type is None:
                self._shadow_the_others()
        finally:
            for joinable in self._joinables:
                joinable.enter_join(_JoinConfig())

    def _shadow_the_others(self) -> None:
        rounds = 0
        while self._sum(0):
            if self._throws:
                # The ranks with data ask twice in each iteration: who is there, and whether somebody has none left.
                self._sum(1)
                raise DistError(f"Rank {self._group.rank()} exhausted all inputs.")
            for hook in self._hooks:
                hook.main_hook()
            rounds += 1
            if rounds == _MUCH_SKEW + 1:
                warnings.warn(
                    f"Detected uneven input skew of greater than {_MUCH_SKEW}. This means that rank "
                    f"{self._group.rank()} has at least {_MUCH_SKEW} fewer inputs than other currently-active ranks. "
                    "This level of skew could lead to performance degradation during training.",
                    stacklevel=3,
                )
        for hook in self._hooks:
            hook.post_hook(not rounds)

    def _sum(self, mine: int) -> int:
        """The sum of a number over all ranks; ranks with data contribute 1 in `notify_join_context`."""
        count = tensor([float(mine)], device=self._device)
        _collectives.all_reduce(count, group=self._group)
        return int(count.item())

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Work | None:
        """Tell the ranks without data that this one has some. Call it before the collectives of an iteration.

        Returns the `Work` that counts the ranks with data for the first joinable of a context, and None for others and
        outside of contexts. `RuntimeError` with `throw_on_early_termination` if a rank has no data left.
        """
        config = getattr(joinable, "_join_config", None)
        if config is None:
            raise PreconditionError(f"Check that the {type(joinable)} constructor calls the ``Joinable`` constructor")
        # Several joinables share one loop, which is counted once.
        if not (config.enable and config.is_first_joinable):
            return None
        group, device = joinable.join_process_group, joinable.join_device
        work = _collectives.all_reduce(tensor([1.0], device=device), group=group, async_op=True)
        if config.throw_on_early_termination:
            left = tensor([0.0], device=device)
            _collectives.all_reduce(left, group=group)
            if left.item():
                raise DistError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
        return work
