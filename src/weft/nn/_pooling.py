"""Pooling."""

from __future__ import annotations

from typing import Any

from weft.nn import functional as F
from weft.nn._layer import REQUIRED, layer


def _stride_of_kernel(pool: Any) -> None:
    if pool.stride is None:
        pool.stride = pool.kernel_size


def _one_tuples(pool: Any) -> None:
    _stride_of_kernel(pool)
    for field in ("kernel_size", "stride", "padding"):
        value = getattr(pool, field)
        setattr(pool, field, (value,) if isinstance(value, int) else tuple(value))


def _max_pool(n: int) -> Any:
    return layer(
        f"MaxPool{n}d", __name__, getattr(F, f"max_pool{n}d"), f"The largest element of each window over {n} dims.",
        "kernel_size={kernel_size}, stride={stride}, padding={padding}, dilation={dilation}, ceil_mode={ceil_mode}",
        settle=_stride_of_kernel, kernel_size=REQUIRED, stride=None, padding=0, dilation=1, return_indices=False,
        ceil_mode=False,
    )  # fmt: skip


def _avg_pool(n: int) -> Any:
    extra: dict[str, Any] = {} if n == 1 else {"divisor_override": None}
    return layer(
        f"AvgPool{n}d", __name__, getattr(F, f"avg_pool{n}d"), f"The mean of each window over {n} dims.",
        "kernel_size={kernel_size}, stride={stride}, padding={padding}",
        settle=_one_tuples if n == 1 else _stride_of_kernel, kernel_size=REQUIRED, stride=None, padding=0,
        ceil_mode=False, count_include_pad=True, **extra,
    )  # fmt: skip


def _adaptive(kind: str, n: int, **extra: Any) -> Any:
    name = f"Adaptive{kind.capitalize()}Pool{n}d"
    function = getattr(F, f"adaptive_{kind}_pool{n}d")
    doc = f"`{kind}` over windows such that there are `output_size` of them."
    return layer(name, __name__, function, doc, "output_size={output_size}", output_size=REQUIRED, **extra)


MaxPool1d, MaxPool2d, MaxPool3d = map(_max_pool, (1, 2, 3))
AvgPool1d, AvgPool2d, AvgPool3d = map(_avg_pool, (1, 2, 3))
AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d = (_adaptive("avg", n) for n in (1, 2, 3))
AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d = (_adaptive("max", n, return_indices=False) for n in (1, 2, 3))
