"""Initialisation of parameters, in place and outside the tape."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from weft._base.guards import is_a
from weft._base.state import using
from weft._tensor.codegen import op
from weft._tensor.generator import Generator
from weft._tensor.overriding import overridable
from weft._tensor.tensor import Tensor, placed_with
from weft.errors import ValueRangeError

_GAINS = {
    "linear": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    "conv3d": 1.0,
    "conv_transpose1d": 1.0,
    "conv_transpose2d": 1.0,
    "conv_transpose3d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5 / 3,
    "relu": math.sqrt(2),
    "selu": 3 / 4,
}

P = ParamSpec("P")
R = TypeVar("R")


def _untaped(fill: Callable[Concatenate[Tensor, P], object]) -> Callable[Concatenate[Tensor, P], Tensor]:
    """The function, run without recording on the tape."""

    @wraps(fill)
    def filled(tensor: Tensor, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        with using(grad=False):
            fill(tensor, *args, **kwargs)
        return tensor

    return filled


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which to scale weights in front of a nonlinearity."""
    if nonlinearity == "leaky_relu":
        if param is None:
            param = 0.01
        if isinstance(param, bool) or not is_a(param, int, float):
            raise ValueRangeError(f"negative_slope {param} not a valid number")
        return math.sqrt(2 / (1 + param**2))
    if nonlinearity not in _GAINS:
        raise ValueRangeError(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS[nonlinearity]


@overridable
@_untaped
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> None:
    """Uniform numbers from [a, b)."""
    tensor.uniform_(a, b, generator=generator)


@overridable
@_untaped
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> None:
    """Normal numbers."""
    tensor.normal_(mean, std, generator=generator)


@_untaped
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> None:
    """Normal numbers restricted to [a, b]."""
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
            "The distribution of values may be incorrect.",
            stacklevel=3,
        )
    sign = -1 if a + b > 2 * mean else 1  # a range in the upper tail is mirrored to the lower one
    low, high = sorted(sign * (bound - mean) / std for bound in (a, b))
    if high < -3:  # in the tail the normal density is nearly |z| exp(-z**2 / 2), where z**2 is exponential
        tensor.uniform_(math.expm1((high**2 - low**2) / 2), 0, generator=generator)
        tensor.log1p_().mul_(-2).add_(high**2).sqrt_().neg_()
    else:  # 2 cdf(z) - 1
        tensor.uniform_(*(math.erf(z / math.sqrt(2)) for z in (low, high)), generator=generator)
        tensor.erfinv_().mul_(math.sqrt(2))
    tensor.mul_(sign * std).add_(mean).clamp_(a, b)


@overridable
@_untaped
def constant_(tensor: Tensor, val: float) -> None:
    """One number everywhere."""
    tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Ones everywhere."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros everywhere."""
    return constant_(tensor, 0.0)


@_untaped
def eye_(tensor: Tensor) -> None:
    """The identity matrix."""
    if tensor.ndim != 2:
        raise ValueRangeError("Only tensors with 2 dimensions are supported")
    tensor.copy_(placed_with(tensor, op.eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device)))


@_untaped
def dirac_(tensor: Tensor, groups: int = 1) -> None:
    """Weights of a convolution that copies input channels to output channels, as many as there are, in each group."""
    if tensor.ndim not in (3, 4, 5):
        raise ValueRangeError("Only tensors with 3, 4, or 5 dimensions are supported")
    if tensor.shape[0] % groups:
        raise ValueRangeError("dim 0 must be divisible by groups")
    tensor.zero_()
    per_group = tensor.shape[0] // groups
    centre = tuple(size // 2 for size in tensor.shape[2:])
    for group in range(groups):
        for channel in range(min(per_group, tensor.shape[1])):
            tensor[(group * per_group + channel, channel, *centre)] = 1


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """The number of inputs of each output, and of outputs of each input."""
    if tensor.ndim < 2:
        raise ValueRangeError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Uniform numbers that keep the variance of activations and of gradients (Glorot and Bengio, 2010)."""
    bound = gain * math.sqrt(6 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal numbers that keep the variance of activations and of gradients (Glorot and Bengio, 2010)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(_calculate_fan_in_and_fan_out(tensor))), generator)


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    modes = ["fan_in", "fan_out"]
    if mode.lower() not in modes:
        raise ValueRangeError(f"Mode {mode} not supported, please use one of {modes}")
    return _calculate_fan_in_and_fan_out(tensor)[modes.index(mode.lower())]


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def _is_empty(tensor: Tensor) -> bool:
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return True
    return False


@overridable
def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Uniform numbers that keep the variance after a rectifier with negative slope `a` (He et al., 2015)."""
    if _is_empty(tensor):
        return tensor
    bound = math.sqrt(3) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Normal numbers that keep the variance after a rectifier with negative slope `a` (He et al., 2015)."""
    if _is_empty(tensor):
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


@_untaped
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> None:
    """A matrix with orthonormal rows or columns, whichever are fewer, times `gain`; later dims count as columns."""
    if tensor.ndim < 2:
        raise ValueRangeError("Only tensors with 2 or more dimensions are supported")
    if not tensor.numel():
        return
    rows = tensor.shape[0]
    columns = tensor.numel() // rows
    tall = (max(rows, columns), min(rows, columns))
    drawn = op.randn(tall, dtype=tensor.dtype, device=tensor.device, generator=generator)
    q, r = op.qr(placed_with(tensor, drawn))
    q = q * op.sign(op.diagonal(r))  # makes the distribution uniform over orthogonal matrices (Mezzadri, 2007)
    tensor.copy_(((q.t() if rows < columns else q) * gain).reshape(tensor.shape))


@_untaped
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> None:
    """Normal numbers, with the share `sparsity` of zeros in each column (Martens, 2010)."""
    if tensor.ndim != 2:
        raise ValueRangeError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    tensor.normal_(0, std, generator=generator)
    drawn = op.rand((rows, columns), dtype=tensor.dtype, device=tensor.device, generator=generator)
    tensor.mul_(placed_with(tensor, drawn).argsort(0).argsort(0) >= math.ceil(sparsity * rows))


def _deprecated(fill: Callable[P, R]) -> Callable[P, R]:
    """The function under its deprecated name."""
    name = fill.__name__.removesuffix("_")

    @wraps(fill)
    def filled(*args: P.args, **kwargs: P.kwargs) -> R:
        warnings.warn(f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.", FutureWarning, stacklevel=2)
        return fill(*args, **kwargs)

    filled.__name__ = filled.__qualname__ = name
    return filled


uniform = _deprecated(uniform_)
normal = _deprecated(normal_)
constant = _deprecated(constant_)
eye = _deprecated(eye_)
dirac = _deprecated(dirac_)
xavier_uniform = _deprecated(xavier_uniform_)
xavier_normal = _deprecated(xavier_normal_)
kaiming_uniform = _deprecated(kaiming_uniform_)
kaiming_normal = _deprecated(kaiming_normal_)
orthogonal = _deprecated(orthogonal_)
sparse = _deprecated(sparse_)


# PyTorch's names of what fills without recording on the tape
_no_grad_uniform_ = uniform_
_no_grad_normal_ = normal_
_no_grad_trunc_normal_ = trunc_normal_
_no_grad_fill_ = constant_
