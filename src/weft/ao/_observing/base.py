"""What observers have in common: they watch tensors, and choose a grid for them."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

import numpy as np

from weft._base.dtype import (
    DType,
    float8_e4m3fn,
    float8_e5m2,
    int8,
    int16,
    int32,
    int64,
    qint8,
    qint32,
    quint8,
    uint8,
    uint16,
)
from weft._base.layout import (
    per_channel_affine_float_qparams,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
    qscheme,
)
from weft._base.types import AnyCallable, Arg, Kwargs, PyTree, Result, SavedState
from weft._tensor.codegen import op
from weft._tensor.convert import tensor
from weft._tensor.tensor import Tensor
from weft.ao._observing.utils import (
    calculate_qmin_qmax,
    check_min_max_valid,
    is_per_channel,
    is_per_tensor,
    validate_qmin_qmax,
)
from weft.errors import LacksAttributeError, PreconditionError, UnsupportedError
from weft.nn._module import Module

EPS = float(np.finfo(np.float32).eps)

_DTYPES = (qint8, quint8, qint32, int8, uint8, int16, int32, float8_e5m2, float8_e4m3fn, uint16)


class PartialWrapper:
    """A constructor with some of its arguments, to which `with_args` adds more."""

    def __init__(self, p: partial[object]) -> None:
        self.p = p
        self.callable_args: dict[str, AnyCallable] = {}

    def __call__(self, *args: Arg, **keywords: Arg) -> Result:
        late = {name: make() for name, make in self.callable_args.items() if name not in keywords}
        return self.p(*args, **{**late, **keywords})

    def __repr__(self) -> str:
        return repr(self.p) + repr(self.callable_args)

    def with_args(self, **kwargs: Arg) -> PartialWrapper:
        """A constructor with more arguments."""
        result = PartialWrapper(partial(self, **kwargs))
        result.callable_args = dict(self.callable_args)
        return result

    def with_callable_args(self, **kwargs: Arg) -> PartialWrapper:
        """A constructor with arguments that are made at each call."""
        result = self.with_args()
        result.callable_args = {**self.callable_args, **kwargs}
        return result


def with_args(cls_or_self: AnyCallable, **kwargs: Arg) -> PartialWrapper:
    """A constructor of the class with these arguments."""
    return PartialWrapper(partial(cls_or_self, **kwargs))


class ObserverBase(ABC, Module):
    """A module that returns its input, and remembers what is needed to choose a grid for such inputs.

    Subclasses have `forward(x)` and `calculate_qparams()`.
    """

    def __init__(self, dtype: DType, is_dynamic: bool = False) -> None:
        super().__init__()
        self.dtype = dtype
        self.is_dynamic = is_dynamic

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """The input."""

    @abstractmethod
    def calculate_qparams(self, **kwargs: Arg) -> tuple[Tensor, Tensor]:
        """The scales and the zero points."""

    @classmethod
    def with_args(cls, **kwargs: Arg) -> PartialWrapper:
        """A constructor of the class with these arguments."""
        return with_args(cls, **kwargs)

    @classmethod
    def with_callable_args(cls, **kwargs: Arg) -> PartialWrapper:
        """A constructor of the class with arguments that are made at each call."""
        return with_args(cls).with_callable_args(**kwargs)


def require_tensor(observer: Module, x: PyTree) -> None:
    """`AttributeError` if what is to be observed is no tensor, such as an input that is None in this call."""
    if not isinstance(x, Tensor):
        raise LacksAttributeError(
            f"{type(observer).__name__} observes tensors, but {getattr(observer, 'observes', 'its input')} is of type "
            f"{type(x).__name__}: pass a tensor, or leave what takes it on floats by giving it None as QConfig "
            "(QConfigMapping().set_module_name(...), or set_object_type for a function)"
        )


class UniformQuantizationObserverBase(ObserverBase):
    """Base of observers that choose the grid for a range of numbers.

    dtype         of the quantized tensor
    qscheme       one grid or one for each channel; if symmetric, with zero in the middle
    reduce_range  use half of the levels
    quant_min     the lowest level, and `quant_max` the highest; by default those of the type
    eps           the smallest scale
    """

    _version = 3

    eps: Tensor
    min_val: Tensor
    max_val: Tensor

    def __init__(
        self,
        dtype: DType = quint8,
        qscheme: qscheme = per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: Kwargs | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Arg,
    ) -> None:
        super().__init__(dtype=dtype, is_dynamic=is_dynamic, **kwargs)
        self.qscheme = qscheme
        if reduce_range:
            warnings.warn(
                "Please use quant_min and quant_max to specify the range for observers. reduce_range will be "
                "deprecated in a future release of PyTorch.",
                UserWarning,
                stacklevel=2,
            )
        self.reduce_range = reduce_range
        self.register_buffer("eps", tensor([eps], **(factory_kwargs or {})))
        if not (is_per_tensor(qscheme) or is_per_channel(qscheme)):
            raise PreconditionError(f"an observer needs a scheme such as torch.per_tensor_affine, but got {qscheme!r}")
        if dtype not in _DTYPES:
            raise PreconditionError(f"Default Observer only works for {_DTYPES} data type, but got {dtype}")
        self.has_customized_qrange = quant_min is not None and quant_max is not None
        if quant_min is not None and quant_max is not None:
            validate_qmin_qmax(quant_min, quant_max)
        self.quant_min, self.quant_max = calculate_qmin_qmax(
            quant_min, quant_max, self.has_customized_qrange, dtype, reduce_range
        )
        if qscheme in (per_tensor_symmetric, per_channel_symmetric) and reduce_range and dtype is quint8:
            raise UnsupportedError("Cannot reduce range for symmetric quantization for quint8")

    def _require_scheme(self, allowed: Callable[[qscheme], bool], scheme: qscheme) -> None:
        if not allowed(scheme):
            kind = "per_tensor_symmetric and torch.per_tensor_affine"
            if allowed is is_per_channel:
                kind = "per_channel_symmetric, torch.per_channel_affine and torch.per_channel_affine_float_qparams"
            raise UnsupportedError(f"{type(self).__name__}'s qscheme only support torch.{kind}, but got {scheme!r}.")

    def _renew_entries(self, state_dict: SavedState, prefix: str, version: int | None) -> None:
        if version in (None, 1):
            state_dict[f"{prefix}eps"] = tensor([EPS])

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The scale and the zero point, each with one entry, or one for each channel."""
        return self._calculate_qparams(self.min_val, self.max_val)

    def extra_repr(self) -> str:
        """The range, or the ranges of channels."""
        return f"min_val={self.min_val}, max_val={self.max_val}"

    def _calculate_qparams(self, min_val: Tensor, max_val: Tensor) -> tuple[Tensor, Tensor]:
        """The float32 scales and int64 (or float32) zero points of ranges: one entry, or one for each channel."""
        if not check_min_max_valid(min_val, max_val):
            return tensor([1.0], device=min_val.device), tensor([0], device=min_val.device)
        scale, zero_point = self._grid(min_val, max_val)
        return (op.reshape(scale, (1,)), op.reshape(zero_point, (1,))) if not scale.ndim else (scale, zero_point)

    def _grid(self, min_val: Tensor, max_val: Tensor) -> tuple[Tensor, Tensor]:
        """Likewise for ranges that are known to be valid. Nothing waits for them."""
        eps, levels = op.reshape(self.eps, ()).to(min_val.device), float(self.quant_max - self.quant_min)
        if self.qscheme is per_channel_affine_float_qparams:
            scale = (max_val - min_val) / levels
            scale = op.where(scale > eps, scale, 1.0)
            return scale, -min_val / scale
        least, most = op.clamp_max(min_val, 0.0), op.clamp_min(max_val, 0.0)
        if self.qscheme in (per_tensor_symmetric, per_channel_symmetric):
            scale = op.maximum(op.maximum(-least, most) / (levels / 2), eps)
            return scale, op.full(tuple(scale.shape), self._middle(), dtype=int64, device=scale.device)
        scale = op.maximum((most - least) / levels, eps)
        zero_point = self.quant_min - op.round(least / scale).to(int32)
        return scale, op.clamp(zero_point, self.quant_min, self.quant_max)

    def _middle(self) -> int:
        """The zero point of a symmetric grid."""
        if self.dtype in (quint8, uint8):
            return (self.quant_min + self.quant_max) // 2 if self.has_customized_qrange else 128
        return 2**15 if self.dtype is uint16 else 0

    def reset_min_max_vals(self) -> None:
        """Forget what was observed; `NotImplementedError` for observers that cannot."""
        raise UnsupportedError(f"{type(self).__name__}: Cannot reset min/max values in the given observer.")
