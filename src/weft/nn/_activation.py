"""Nonlinearities."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from weft._base.device import DeviceLike
from weft._base.dtype import DType
from weft._base.types import AnyCallable, Arg
from weft._tensor.tensor import Tensor
from weft.errors import PreconditionError, ValueRangeError
from weft.nn import functional as F
from weft.nn._layer import REQUIRED, layer
from weft.nn._linear import fresh
from weft.nn._module import Module
from weft.nn.init import constant_

if TYPE_CHECKING:
    from weft.nn._layer import LayerClass


def _make(name: str, function: AnyCallable, doc: str, repr_format: str | None = "", **fields: Arg) -> LayerClass:
    return layer(name, __name__, function, doc, repr_format, **fields)


ReLU = _make("ReLU", F.relu, "max(0, x).", inplace=False)
RReLU = _make(
    "RReLU",
    F.rrelu,
    "x where positive, else x times a slope drawn from [lower, upper] in training.",
    "lower={lower}, upper={upper}",
    lower=1 / 8,
    upper=1 / 3,
    inplace=False,
)
LeakyReLU = _make(
    "LeakyReLU",
    F.leaky_relu,
    "x where positive, else `negative_slope` x.",
    "negative_slope={negative_slope}",
    negative_slope=0.01,
    inplace=False,
)
ELU = _make("ELU", F.elu, "x where positive, else alpha (exp(x) - 1).", "alpha={alpha}", alpha=1.0, inplace=False)
CELU = _make(
    "CELU", F.celu, "x where positive, else alpha (exp(x / alpha) - 1).", "alpha={alpha}", alpha=1.0, inplace=False
)
SELU = _make("SELU", F.selu, "The ELU that keeps mean 0 and variance 1.", inplace=False)
GELU = _make(
    "GELU",
    F.gelu,
    "x times the normal distribution function of x.",
    "approximate={approximate!r}",
    approximate="none",
)
SiLU = _make("SiLU", F.silu, "x times its sigmoid.", inplace=False)
Mish = _make("Mish", F.mish, "x times the tanh of its softplus.", inplace=False)
Hardsigmoid = _make("Hardsigmoid", F.hardsigmoid, "x / 6 + 1 / 2, cut off at 0 and 1.", None, inplace=False)
Hardswish = _make("Hardswish", F.hardswish, "x times its hard sigmoid.", None, inplace=False)
Hardshrink = _make("Hardshrink", F.hardshrink, "0 where |x| <= lambd, else x.", "{lambd}", lambd=0.5)
Softshrink = _make("Softshrink", F.softshrink, "x moved towards 0 by `lambd`.", "{lambd}", lambd=0.5)
Tanhshrink = _make("Tanhshrink", F.tanhshrink, "x - tanh(x).")
Threshold = _make(
    "Threshold",
    F.threshold,
    "x where above `threshold`, else `value`.",
    "threshold={threshold}, value={value}",
    threshold=REQUIRED,
    value=REQUIRED,
    inplace=False,
)
Sigmoid = _make("Sigmoid", F.sigmoid, "1 / (1 + exp(-x)).")
LogSigmoid = _make("LogSigmoid", F.logsigmoid, "The logarithm of the sigmoid.")
Tanh = _make("Tanh", F.tanh, "The hyperbolic tangent.")
Softsign = _make("Softsign", F.softsign, "x / (1 + |x|).")
Softplus = _make(
    "Softplus",
    F.softplus,
    "log(1 + exp(beta x)) / beta.",
    "beta={beta}, threshold={threshold}",
    beta=1.0,
    threshold=20.0,
)
GLU = _make("GLU", F.glu, "One half along `dim`, times the sigmoid of the other.", "dim={dim}", dim=-1)


def _settle_bounds(hardtanh: Module) -> None:
    for old, name in (("min_value", "min_val"), ("max_value", "max_val")):
        if getattr(hardtanh, old) is not None:
            warnings.warn(
                f"keyword argument `{old}` is deprecated and renamed to `{name}`", FutureWarning, stacklevel=4
            )
            setattr(hardtanh, name, getattr(hardtanh, old))
        delattr(hardtanh, old)
    low, high = hardtanh.min_val, hardtanh.max_val
    if high <= low:
        raise PreconditionError(f"max_val ({high}) must be greater than min_val ({low})")


Hardtanh = _make(
    "Hardtanh",
    F.hardtanh,
    "x cut off at `min_val` and `max_val`.",
    "min_val={min_val}, max_val={max_val}",
    settle=_settle_bounds,
    hidden=("min_value", "max_value"),
    min_val=-1.0,
    max_val=1.0,
    inplace=False,
    min_value=None,
    max_value=None,
)


class ReLU6(Hardtanh):
    """min(max(0, x), 6)."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        """`inplace=True`, if the layer overwrites its input."""
        return "inplace=True" if self.inplace else ""


Softmax = _make("Softmax", F.softmax, "Exponentials along `dim`, scaled to add up to one.", "dim={dim}", dim=None)
Softmin = _make("Softmin", F.softmin, "The softmax of -x.", "dim={dim}", dim=None)
LogSoftmax = _make("LogSoftmax", F.log_softmax, "The logarithm of the softmax.", "dim={dim}", dim=None)


def _over_channels(input: Tensor) -> Tensor:
    if input.ndim not in (3, 4):
        raise ValueRangeError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead")
    return F.softmax(input, -3)


Softmax2d = _make("Softmax2d", _over_channels, "The softmax over the channels of (batch, channels, height, width).")


class PReLU(Module):
    """x where positive, else x times a learnt slope: one for all channels, or one for each."""

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: DeviceLike | None = None, dtype: DType | None = None
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = fresh((num_parameters,), device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the slopes to their initial value."""
        constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """Channels are dim 1."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """The number of slopes."""
        return f"num_parameters={self.num_parameters}"
