"""Which implementations of attention may be used. There is one here, which XLA fuses, so the choice is only stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum

from weft._base.cell import Cell
from weft.errors import PreconditionError


class SDPBackend(IntEnum):
    """PyTorch's implementations of `scaled_dot_product_attention`."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_BACKENDS = Cell("the implementations of attention", frozenset(SDPBackend) - {SDPBackend.ERROR})
_REDUCED_MATH = Cell("whether attention may add up in 16 bits", False)


def is_enabled(backend: SDPBackend) -> bool:
    """Whether an implementation is in the choice."""
    return backend in _BACKENDS.get()


def enable(backend: SDPBackend, enabled: bool) -> None:
    """Add an implementation to the choice, or take it out."""
    _BACKENDS.set(_BACKENDS.get() | {backend} if enabled else _BACKENDS.get() - {backend})


@contextmanager
def sdpa_kernel(backends: list[SDPBackend] | SDPBackend, set_priority: bool = False) -> Iterator[dict[str, object]]:
    """Choose implementations within a block. The results do not depend on the choice, nor does the speed."""
    if not isinstance(backends, (list, SDPBackend)):
        raise PreconditionError(
            "Backend must be an instance of SDPBackend or a list of SDPBackend instances, got "
            f"{type(backends).__name__}"
        )
    chosen: Iterable[SDPBackend] = backends if isinstance(backends, list) else [backends]
    with _BACKENDS.within(frozenset(chosen)):
        yield {}


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Remember a value; sums in attention are computed in float32 in any case."""
    _REDUCED_MATH.set(enabled)


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """The last `allow_fp16_bf16_reduction_math_sdp`."""
    return _REDUCED_MATH.get()


WARN_FOR_UNFUSED_KERNELS = False
"""Whether PyTorch warns of slower implementations; nothing is warned of here."""
