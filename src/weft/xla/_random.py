"""The state of random numbers as one number.

Weft has one default generator for all devices of a process, whose state is a seed and the number of draws so far.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from weft._base.device import DeviceLike
from weft._base.guards import is_int
from weft._tensor.convert import existing
from weft._tensor.generator import default_generator
from weft.errors import ArgumentError

_BITS = 64  # of the seed; the number of draws stands above


def set_rng_state(seed: int, device: DeviceLike | None = None) -> None:
    """Restart the random numbers from a seed, or continue them from a state that `get_rng_state` has returned.

    All devices of the process share the state; `device` is only checked.
    """
    _check(device)
    if not is_int(seed):
        raise ArgumentError(f"set_rng_state(): argument 'seed' must be int, not {type(seed).__name__}")
    if seed >> _BITS > 0:
        default_generator.manual_seed(seed & ((1 << _BITS) - 1)).set_offset(seed >> _BITS)
    else:
        default_generator.manual_seed(seed)


def get_rng_state(device: DeviceLike | None = None) -> int:
    """The state of random numbers: the seed, plus 2**64 for each draw so far."""
    _check(device)
    return default_generator.get_offset() << _BITS | default_generator.initial_seed()


@contextmanager
def fork_rng(device: DeviceLike | None = None, enabled: bool = True) -> Generator[None]:
    """Restore the state of random numbers after the block, unless `enabled` is False."""
    if not enabled:
        yield
        return
    state = get_rng_state(device)
    try:
        yield
    finally:
        set_rng_state(state, device)


def manual_seed(seed: int, device: DeviceLike | None = None) -> None:
    """Restart the random numbers from a seed, as `set_rng_state`."""
    set_rng_state(seed, device)


def _check(device: DeviceLike | None) -> None:
    if device is not None:
        existing(device)
