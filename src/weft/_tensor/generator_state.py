"""The bytes of generators' states, in the forms that PyTorch gives them.

A CPU generator's are 5056: the seed, a state of the Mersenne twister, and fields that PyTorch leaves unread, one of
which holds the number of draws here. PyTorch takes them, and draws its own numbers. A device's are 16 in both
packages: the seed and an offset.
"""

from __future__ import annotations

import hashlib
from typing import cast

import numpy as np

from weft._base.site import warn_user
from weft.errors import SettingError

_WORDS = 624  # of the twister
_TWISTER = np.dtype(
    [
        ("seed", "<i8"),
        ("left", "<i4"),
        ("seeded", "<i4"),
        ("next", "<u8"),
        ("words", "<u8", _WORDS),
        # What follows is read by PyTorch only if `normal_is_valid`, or `float_is_valid`.
        ("mark", "<i8"),
        ("draws", "<i8"),
        ("unused", "<i8"),
        ("normal_is_valid", "<i8"),
        ("normal", "<f4"),
        ("float_is_valid", "<i4"),
    ]
)
_DEVICE = np.dtype([("seed", "<i8"), ("draws", "<i8")])
_MARK = int.from_bytes(b"of Weft\0", "little")


def packed(seed: int, draws: int, *, for_cpu: bool) -> np.ndarray:
    """The bytes of a state; `seed` is signed."""
    state = np.zeros((), _TWISTER if for_cpu else _DEVICE)
    state["seed"], state["draws"] = seed, draws
    if for_cpu:
        start = [half for n in (seed, draws) for half in (n & 0xFFFFFFFF, n >> 32 & 0xFFFFFFFF)]
        # Without draws, it is what PyTorch's `manual_seed` makes of the seed.
        twister = np.random.RandomState(start if draws else start[0])
        state["words"] = cast("tuple[str, np.ndarray]", twister.get_state(legacy=True))[1]
        state["left"], state["seeded"], state["mark"] = 1, 1, _MARK
    return np.frombuffer(state.tobytes(), np.uint8)


def unpacked(raw: np.ndarray) -> tuple[int, int]:
    """The seed and the number of draws of a state, an array of `uint8`.

    For a state of PyTorch's twister, which is not to be continued here, these are a seed that depends on nothing but
    its bytes, and 0, with a warning.
    """
    content = raw.tobytes()
    if len(content) == _DEVICE.itemsize:
        state = np.frombuffer(content, _DEVICE)[0]
        return int(state["seed"]), int(state["draws"])
    if len(content) != _TWISTER.itemsize:
        raise SettingError(
            f"the RNG state has {len(content)} bytes, but a CPU generator's has {_TWISTER.itemsize} and a device's "
            f"{_DEVICE.itemsize}: give what get_rng_state() or Generator.get_state() has returned"
        )
    state = np.frombuffer(content, _TWISTER)[0]
    if state["mark"] == _MARK and not state["normal_is_valid"]:
        return int(state["seed"]), int(state["draws"])
    if state["seeded"] != 1 or not 0 < state["left"] <= _WORDS or state["next"] > _WORDS:
        raise SettingError("Invalid mt19937 state: the RNG state has the size of PyTorch's, but was made otherwise")
    first = int(state["seed"]) % 2**64
    # All bytes count, since two states of one seed differ only in how far they have come.
    seed = int.from_bytes(hashlib.sha256(content).digest()[:8], "little", signed=True)
    warn_user(
        f"this RNG state is that of PyTorch's mt19937 generator (started with the seed {first}), whose numbers "
        f"Weft does not draw: it goes on from the seed {seed % 2**64}, which is derived from the state and so "
        "the same in each process and each run. States that Weft saves are continued exactly."
    )
    return seed, 0
