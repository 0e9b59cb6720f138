"""The names of PyTorch's ways to share memory. Here all tensors are copied, so the choice changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import PreconditionError

_STRATEGIES = ("file_descriptor", "file_system")


@dataclass
class _Sharing:
    strategy: str = _STRATEGIES[0]


_sharing = _Sharing()


def get_all_sharing_strategies() -> set[str]:
    """The strategies that can be chosen."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    """The strategy that was chosen."""
    return _sharing.strategy


def set_sharing_strategy(new_strategy: str) -> None:
    """Choose a strategy; `AssertionError` for one that there is not."""
    if new_strategy not in _STRATEGIES:
        raise PreconditionError(
            f"invalid sharing strategy {new_strategy!r}, expected one of {get_all_sharing_strategies()}"
        )
    _sharing.strategy = new_strategy
