"""PyTorch's names of strategies to share memory. Tensors are always copied, so the choice has no effect."""

from __future__ import annotations

from dataclasses import dataclass

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
    """Set a strategy; `AssertionError` for an unknown one."""
    if new_strategy not in _STRATEGIES:
        raise PreconditionError(
            f"invalid sharing strategy {new_strategy!r}, expected one of {get_all_sharing_strategies()}"
        )
    _sharing.strategy = new_strategy
