"""The default random generator: seeds and state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from weft._tensor.generator import Generator, default_generator
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ValueRangeError


def manual_seed(seed: int) -> Generator:
    """Restart the default generator from a seed."""
    try:
        whole = int(seed)
    except (TypeError, ValueError):
        kind = ValueRangeError if isinstance(seed, str) else ArgumentError
        raise kind(f"manual_seed(): argument 'seed' must be int, not {type(seed).__name__}: {seed!r}") from None
    return default_generator.manual_seed(whole)


def seed() -> int:
    """Restart the default generator from a seed of the operating system; returns it."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed from which the default generator was started."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The default generator's state: a `uint8` tensor, of the size that PyTorch's has."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Set a state that `get_rng_state` returned; `TypeError` for anything else.

    A state of PyTorch's CPU generator cannot be continued: a seed is derived from it, with a warning.
    """
    default_generator.set_state(new_state)


def thread_safe_generator() -> Generator | None:
    """None, for the default generator, which threads may share; workers that load data are processes here."""
    return None


@contextmanager
def fork_rng(enabled: bool = True) -> Iterator[None]:
    """Restore the default generator's state after the block."""
    before = default_generator.state()
    try:
        yield
    finally:
        if enabled:
            default_generator.restore(before)
