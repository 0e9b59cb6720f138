"""The autocast state of a thread: the device types for which it is on, their lower types, and the cached casts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from weft._base.dtype import DType, bfloat16, float16

DEFAULT_TYPES = {"cpu": bfloat16, "cuda": float16, "xla": bfloat16, "mps": float16, "xpu": float16, "mtia": float16}
"""The types of devices that have autocast, and what each lowers to unless it is told otherwise."""

DTYPE_INDEX = {device_type: at for at, device_type in enumerate(DEFAULT_TYPES)}
"""The index of each type of device in `Autocast.dtypes`."""


@dataclass(frozen=True, slots=True)
class Autocast:
    """The autocast state of a thread. Equal where operators do the same.

    enabled   the types of devices whose tensors are cast
    dtypes    the lower type of each type of device, in the order of `DTYPE_INDEX`
    caches    whether casts of leaves are kept for their next use
    as_if     the type of device that all tensors are taken to be on, or "" for their own
    nesting   how many regions are around
    kept      the casts that are kept: by the leaf's role and the type, the leaf's value and its cast
    """

    enabled: frozenset[str] = frozenset()
    dtypes: tuple[DType, ...] = tuple(DEFAULT_TYPES.values())
    caches: bool = True
    as_if: str = ""
    nesting: int = field(default=0, compare=False)
    kept: dict[Any, Any] = field(default_factory=dict[Any, Any], compare=False, repr=False)

    def off(self) -> Autocast:
        """The state in which nothing is cast, while what is kept stays."""
        return replace(self, enabled=frozenset())

    def apart(self) -> Autocast:
        """The same state with casts of its own, for what is recorded to be replayed."""
        return replace(self, kept={})


NO_AUTOCAST = Autocast()
"""The state of a new thread. It casts nothing, so it keeps nothing, and all threads share it."""
