"""The default random generator: seeds and state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from weft._tensor.convert import from_host
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
    """The default generator's state: a `uint8` tensor of 16 elements (seed and number of draws)."""
    return from_host(np.frombuffer(np.array(default_generator.state(), np.int64).tobytes(), np.uint8))


def set_rng_state(new_state: Tensor) -> None:
    """Set a state that `get_rng_state` returned; `RuntimeError` for anything else."""
    raw = new_state.numpy()
    if raw.dtype != np.uint8 or raw.shape != (16,):
        raise ArgumentError(
            f"RNG state must be a torch.ByteTensor of 16 elements, got {new_state.dtype}{list(raw.shape)}"
        )
    seed, offset = np.frombuffer(raw.tobytes(), np.int64).tolist()
    default_generator.restore((seed, offset))


@contextmanager
def fork_rng(enabled: bool = True) -> Iterator[None]:
    """Restore the default generator's state after the block."""
    before = default_generator.state()
    try:
        yield
    finally:
        if enabled:
            default_generator.restore(before)
