"""Pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft._base.types import Arg
from weft._tensor.tensor import Tensor
from weft.errors import ValueRangeError
from weft.nn import functional as F
from weft.nn._layer import REQUIRED, layer
from weft.nn._module import Module
from weft.ops._neural import ntuple

if TYPE_CHECKING:
    from weft.nn._layer import LayerClass


class _MaxPoolNd(Module):
    """What maximum pooling of each number of dims derives from: libraries ask for the kind of a layer."""


class _AvgPoolNd(Module):
    """What pooling by means derives from."""


class _AdaptiveMaxPoolNd(Module):
    """What maximum pooling to given sizes derives from."""


class _AdaptiveAvgPoolNd(Module):
    """What pooling by means to given sizes derives from."""


class _LPPoolNd(Module):
    """What pooling by p-norms derives from."""


def _stride_of_kernel(pool: Module) -> None:
    if pool.stride is None:
        pool.stride = pool.kernel_size


def _one_tuples(pool: Module) -> None:
    _stride_of_kernel(pool)
    for field in ("kernel_size", "stride", "padding"):
        setattr(pool, field, ntuple(getattr(pool, field), 1))


def _max_pool(n: int) -> LayerClass:
    return layer(
        f"MaxPool{n}d",
        __name__,
        getattr(F, f"max_pool{n}d"),
        f"The largest element of each window over {n} dims.",
        "kernel_size={kernel_size}, stride={stride}, padding={padding}, dilation={dilation}, ceil_mode={ceil_mode}",
        base=_MaxPoolNd,
        settle=_stride_of_kernel,
        kernel_size=REQUIRED,
        stride=None,
        padding=0,
        dilation=1,
        return_indices=False,
        ceil_mode=False,
    )


def _avg_pool(n: int) -> LayerClass:
    extra: dict[str, Any] = {} if n == 1 else {"divisor_override": None}
    return layer(
        f"AvgPool{n}d",
        __name__,
        getattr(F, f"avg_pool{n}d"),
        f"The mean of each window over {n} dims.",
        "kernel_size={kernel_size}, stride={stride}, padding={padding}",
        base=_AvgPoolNd,
        settle=_one_tuples if n == 1 else _stride_of_kernel,
        kernel_size=REQUIRED,
        stride=None,
        padding=0,
        ceil_mode=False,
        count_include_pad=True,
        **extra,
    )


def _adaptive(kind: str, n: int, **extra: Arg) -> LayerClass:
    name = f"Adaptive{kind.capitalize()}Pool{n}d"
    function = getattr(F, f"adaptive_{kind}_pool{n}d")
    doc = f"`{kind}` over windows such that there are `output_size` of them."
    base = _AdaptiveMaxPoolNd if kind == "max" else _AdaptiveAvgPoolNd
    return layer(name, __name__, function, doc, "output_size={output_size}", base=base, output_size=REQUIRED, **extra)


MaxPool1d, MaxPool2d, MaxPool3d = map(_max_pool, (1, 2, 3))
AvgPool1d, AvgPool2d, AvgPool3d = map(_avg_pool, (1, 2, 3))
AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d = (_adaptive("avg", n) for n in (1, 2, 3))
AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d = (_adaptive("max", n, return_indices=False) for n in (1, 2, 3))


def _lp_pool(n: int) -> LayerClass:
    return layer(
        f"LPPool{n}d",
        __name__,
        getattr(F, f"lp_pool{n}d"),
        f"The p-norm of each window over {n} dims.",
        "norm_type={norm_type}, kernel_size={kernel_size}, stride={stride}, ceil_mode={ceil_mode}",
        base=_LPPoolNd,
        norm_type=REQUIRED,
        kernel_size=REQUIRED,
        stride=None,
        ceil_mode=False,
    )


LPPool1d, LPPool2d, LPPool3d = map(_lp_pool, (1, 2, 3))


class _MaxUnpool(Module):
    """The base of the partial inverses of maximum pooling."""

    _sides: int

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
    ) -> None:
        super().__init__()
        self.kernel_size = ntuple(kernel_size, self._sides)
        self.stride = ntuple(kernel_size if stride is None else stride, self._sides)
        self.padding = ntuple(padding, self._sides)

    def forward(self, input: Tensor, indices: Tensor, output_size: int | Sequence[int] | None = None) -> Tensor:
        """Maxima put back at their positions, with zeros elsewhere, in the size before pooling or in `output_size`."""
        function = getattr(F, f"max_unpool{self._sides}d")
        return function(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        """Kernel size, stride and padding."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """Maxima of windows over 1 dim put back at their positions."""

    _sides = 1


class MaxUnpool2d(_MaxUnpool):
    """Maxima of windows over 2 dims put back at their positions."""

    _sides = 2


class MaxUnpool3d(_MaxUnpool):
    """Maxima of windows over 3 dims put back at their positions."""

    _sides = 3


class _FractionalMaxPool(Module):
    """The base of maximum pooling over windows at random places."""

    _sides: int
    _random_samples: Tensor | None

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        output_size: int | Sequence[int] | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        n, name = self._sides, type(self).__name__
        self.kernel_size = ntuple(kernel_size, n)
        if n == 3 and min(self.kernel_size) <= 0:
            raise ValueRangeError(f"kernel_size must be greater than 0, but got {kernel_size}")
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else ntuple(output_size, n)
        self.output_ratio = None if output_ratio is None else ntuple(output_ratio, n)
        if output_size is None and output_ratio is None:
            raise ValueRangeError(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueRangeError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise ValueRangeError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """The largest element of each window, and its position if `return_indices`."""
        function = getattr(F, f"fractional_max_pool{self._sides}d")
        return function(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """Maximum pooling over windows at random places. Their number is `output_size`, or a ratio of the input's size."""

    _sides = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """Maximum pooling over 3 dims, with windows at random places, as `FractionalMaxPool2d`."""

    _sides = 3
