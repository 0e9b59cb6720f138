"""The strategies by which processes share the memory of tensors (`_segments.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing import resource_tracker

from weft.errors import PreconditionError

_STRATEGIES = ("file_descriptor", "file_system")


@dataclass
class _Sharing:
    strategy: str = _STRATEGIES[0]


_sharing = _Sharing()


def get_all_sharing_strategies() -> set[str]:
    """The strategies that can be set."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    """The strategy that is set."""
    return _sharing.strategy


def set_sharing_strategy(new_strategy: str) -> None:
    """Set the strategy for segments that are made from now on; `AssertionError` for an unknown one.

    By "file_descriptor" each shared tensor has a descriptor in each process; by "file_system" it has a name instead.
    """
    if new_strategy not in _STRATEGIES:
        raise PreconditionError(
            f"invalid sharing strategy {new_strategy!r}, expected one of {get_all_sharing_strategies()}"
        )
    if new_strategy == "file_system":
        resource_tracker.ensure_running()  # before processes are started: one tracker for all of them
    _sharing.strategy = new_strategy
