"""Observers: modules that watch tensors, and choose the grid on which such tensors are quantized."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NoReturn

from weft._base.dtype import DType, float16, float32, int32, qint8, quint8
from weft._base.layout import (
    per_channel_affine,
    per_channel_affine_float_qparams,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
    qscheme,
)
from weft._base.types import Arg, Kwargs, SavedState
from weft._tensor.codegen import op
from weft._tensor.convert import tensor
from weft._tensor.tensor import Tensor
from weft.ao._observing.base import EPS, require_tensor
from weft.ao._observing.base import ObserverBase as ObserverBase
from weft.ao._observing.base import PartialWrapper as PartialWrapper
from weft.ao._observing.base import UniformQuantizationObserverBase as UniformQuantizationObserverBase
from weft.ao._observing.base import with_args as with_args
from weft.ao._observing.histogram import HistogramObserver as HistogramObserver
from weft.ao._observing.utils import is_per_channel, is_per_tensor
from weft.errors import StateDictError, UnsupportedError
from weft.nn._module import Module
from weft.nn._tables import loader_of

# --- one range for a tensor ---------------------------------------------------------------------------------------


class MinMaxObserver(UniformQuantizationObserverBase):
    """The grid from the smallest to the largest number that was seen."""

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
        self._require_scheme(is_per_tensor, qscheme)
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps, is_dynamic, **kwargs)
        self.register_buffer("min_val", tensor(float("inf"), **(factory_kwargs or {})))
        self.register_buffer("max_val", tensor(float("-inf"), **(factory_kwargs or {})))

    def forward(self, x: Tensor) -> Tensor:
        """The input, whose ends widen the range."""
        require_tensor(self, x)
        if x.numel():
            numbers = x.detach().to(self.min_val.dtype)
            self._observe(op.amin(numbers), op.amax(numbers))
        return x

    def _observe(self, least: Tensor, most: Tensor) -> None:
        self.min_val.copy_(op.minimum(self.min_val, least))
        self.max_val.copy_(op.maximum(self.max_val, most))

    def reset_min_max_vals(self) -> None:
        """Forget the range."""
        self.min_val.fill_(float("inf"))
        self.max_val.fill_(float("-inf"))


class MovingAverageMinMaxObserver(MinMaxObserver):
    """The grid of a range whose ends are moving averages of those of the tensors: `new = old + c (seen - old)`."""

    def __init__(
        self,
        averaging_constant: float = 0.01,
        dtype: DType = quint8,
        qscheme: qscheme = per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Arg,
    ) -> None:
        _require_memoryless(self, is_dynamic, averaging_constant)
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, None, eps, is_dynamic, **kwargs)
        self.averaging_constant = averaging_constant

    def _observe(self, least: Tensor, most: Tensor) -> None:
        first = op.isinf(self.min_val) & op.isinf(self.max_val)
        self.min_val.copy_(_averaged(self.min_val, least, self.averaging_constant, first))
        self.max_val.copy_(_averaged(self.max_val, most, self.averaging_constant, first))


def _averaged(old: Tensor, new: Tensor, constant: float, first: Tensor) -> Tensor:
    return op.where(first, new, old + constant * (new - old))


def _require_memoryless(observer: Module, is_dynamic: bool, constant: float) -> None:
    if is_dynamic and constant != 1:
        raise UnsupportedError(
            f"{type(observer).__name__} doesn't support dynamic quantization for averaging constant of {constant}; "
            "use averaging_constant=1"
        )


# --- a range for each channel -------------------------------------------------------------------------------------


class PerChannelMinMaxObserver(UniformQuantizationObserverBase):
    """A grid for each index along `ch_axis`, from the smallest to the largest number that was seen there."""

    def __init__(
        self,
        ch_axis: int = 0,
        dtype: DType = quint8,
        qscheme: qscheme = per_channel_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: Kwargs | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Arg,
    ) -> None:
        self._require_scheme(is_per_channel, qscheme)
        if is_dynamic:
            raise UnsupportedError(f"{type(self).__name__} doesn't support dynamic quantization")
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps, is_dynamic, **kwargs)
        self.ch_axis = ch_axis
        self.register_buffer("min_val", tensor([], **(factory_kwargs or {})))
        self.register_buffer("max_val", tensor([], **(factory_kwargs or {})))

    def forward(self, x: Tensor) -> Tensor:
        """The input, whose ends along each channel widen the ranges."""
        require_tensor(self, x)
        if x.numel():
            numbers = op.movedim(x.detach().to(self.min_val.dtype), self.ch_axis, 0)
            rows = op.reshape(numbers, (numbers.shape[0], -1))
            least, most = op.amin(rows, 1), op.amax(rows, 1)
            if self.min_val.numel():
                least, most = self._combined(least, most)
            self.min_val.resize_(least.shape).copy_(least)
            self.max_val.resize_(most.shape).copy_(most)
        return x

    def _combined(self, least: Tensor, most: Tensor) -> tuple[Tensor, Tensor]:
        return op.minimum(self.min_val, least), op.maximum(self.max_val, most)

    def _renew_entries(self, state_dict: SavedState, prefix: str, version: int | None) -> None:
        """Take ranges of any number of channels; files before version 3 call them `min_vals` and `max_vals`."""
        super()._renew_entries(state_dict, prefix, version)
        for name in ("min_val", "max_val"):
            if version is not None and version < 3 and f"{prefix}{name}s" in state_dict:
                state_dict[f"{prefix}{name}"] = state_dict.pop(f"{prefix}{name}s")
            if f"{prefix}{name}" in state_dict:
                getattr(self, name).resize_(state_dict[f"{prefix}{name}"].shape)

    def reset_min_max_vals(self) -> None:
        """Forget the ranges."""
        for name in ("min_val", "max_val"):
            setattr(self, name, tensor([], device=getattr(self, name).device))


class MovingAveragePerChannelMinMaxObserver(PerChannelMinMaxObserver):
    """A grid for each index along `ch_axis`, with moving averages as in `MovingAverageMinMaxObserver`."""

    def __init__(
        self,
        averaging_constant: float = 0.01,
        ch_axis: int = 0,
        dtype: DType = quint8,
        qscheme: qscheme = per_channel_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Arg,
    ) -> None:
        super().__init__(ch_axis, dtype, qscheme, reduce_range, quant_min, quant_max, None, eps, is_dynamic, **kwargs)
        self.averaging_constant = averaging_constant

    def _combined(self, least: Tensor, most: Tensor) -> tuple[Tensor, Tensor]:
        never = op.zeros((), dtype=self.min_val.dtype, device=self.min_val.device) != 0
        return (
            _averaged(self.min_val, least, self.averaging_constant, never),
            _averaged(self.max_val, most, self.averaging_constant, never),
        )


# --- no range -----------------------------------------------------------------------------------------------------


class FixedQParamsObserver(ObserverBase):
    """A grid that is known beforehand, such as that of a sigmoid's results."""

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self,
        scale: float,
        zero_point: int,
        dtype: DType = quint8,
        qscheme: qscheme = per_tensor_affine,
        quant_min: int = 0,
        quant_max: int = 255,
        is_dynamic: bool = False,
        **kwargs: Arg,
    ) -> None:
        if is_dynamic:
            raise UnsupportedError("FixedQParamsObserver doesn't support dynamic quantization")
        super().__init__(dtype=dtype, is_dynamic=is_dynamic, **kwargs)
        self.quant_min = quant_min
        self.quant_max = quant_max
        self.register_buffer("scale", tensor([scale], dtype=float32))
        self.register_buffer("zero_point", tensor([zero_point], dtype=int32))
        self.qscheme = qscheme

    def forward(self, x: Tensor) -> Tensor:
        """The input."""
        return x

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The scale and the zero point that were given."""
        return self.scale, self.zero_point


class _Unobserving(ObserverBase):
    """An observer that chooses no grid."""

    def forward(self, x: Tensor) -> Tensor:
        """The input."""
        return x

    def calculate_qparams(self, **kwargs: Arg) -> NoReturn:
        """Raises: no grid is chosen."""
        del kwargs
        raise UnsupportedError(f"calculate_qparams should not be called for {type(self).__name__}")


class PlaceholderObserver(_Unobserving):
    """Says which type is wanted, for layers that need no range: dynamic ones, and those in float16."""

    def __init__(
        self,
        dtype: DType = float32,
        custom_op_name: str = "",
        compute_dtype: DType | None = None,
        quant_min: int | None = None,
        quant_max: int | None = None,
        qscheme: qscheme | None = None,
        eps: float | None = None,
        is_dynamic: bool = False,
    ) -> None:
        super().__init__(dtype=dtype, is_dynamic=is_dynamic or compute_dtype is not None)
        self.qscheme = per_tensor_affine if qscheme is None else qscheme
        self.quant_min = quant_min
        self.quant_max = quant_max
        self.eps = EPS if eps is None else eps
        self.custom_op = custom_op_name

    def extra_repr(self) -> str:
        """The type."""
        return f"dtype={self.dtype}, is_dynamic={self.is_dynamic}"


class NoopObserver(_Unobserving):
    """Says which type is wanted, and does nothing else."""

    def __init__(self, dtype: DType = float16, custom_op_name: str = "") -> None:
        super().__init__(dtype=dtype, is_dynamic=False)
        self.custom_op = custom_op_name


class ReuseInputObserver(_Unobserving):
    """Says that the result is on the grid of the input, as that of `reshape`. Used by graph mode only."""

    def __init__(self) -> None:
        super().__init__(quint8, is_dynamic=False)


class RecordingObserver(_Unobserving):
    """Keeps all tensors that it sees, for a look at them."""

    def __init__(self, dtype: DType = quint8) -> None:
        super().__init__(dtype=dtype, is_dynamic=False)
        self.tensor_val: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        """The input, of which a copy is kept."""
        require_tensor(self, x)
        self.tensor_val.append(x.clone())
        return x

    def get_tensor_value(self) -> list[Tensor]:
        """All tensors that were seen."""
        return self.tensor_val


# --- state dicts --------------------------------------------------------------------------------------------------

_OF_OBSERVERS = ("observer", "activation_post_process")


def get_observer_state_dict(mod: Module) -> OrderedDict[str, Tensor]:
    """The entries of a model's state dict that belong to observers of activations."""
    state: Any = mod.state_dict()
    entries: Any = OrderedDict((key, value) for key, value in state.items() if "activation_post_process" in key)
    entries._metadata = state._metadata
    return entries


def load_observer_state_dict(mod: Module, obs_dict: Mapping[str, object]) -> None:
    """Load what `get_observer_state_dict` returned into a model with the same observers."""
    missing: list[str] = []
    unexpected: list[str] = []
    for name, module in mod.named_modules():
        if isinstance(module, ObserverBase):
            loader_of(module)(dict(obs_dict), f"{name}.", {"version": 3}, False, missing, unexpected, [])
    for what, keys in (("Missing", missing), ("Unexpected", unexpected)):
        wrong = [key for key in keys if any(word in key for word in _OF_OBSERVERS)]
        if wrong:
            raise StateDictError(f"{what} keys for observer {wrong[0]} in state_dict")


# --- with the usual arguments -------------------------------------------------------------------------------------

default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_placeholder_observer = PlaceholderObserver
default_debug_observer = RecordingObserver
default_weight_observer = MinMaxObserver.with_args(dtype=qint8, qscheme=per_tensor_symmetric)
weight_observer_range_neg_127_to_127 = default_weight_observer.with_args(quant_min=-127, quant_max=127, eps=2**-12)
default_histogram_observer = HistogramObserver.with_args(quant_min=0, quant_max=127)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(dtype=qint8, qscheme=per_channel_symmetric)
per_channel_weight_observer_range_neg_127_to_127 = default_per_channel_weight_observer.with_args(
    quant_min=-127, quant_max=127, eps=2**-12
)
default_dynamic_quant_observer = PlaceholderObserver.with_args(
    dtype=quint8, quant_min=0, quant_max=255, is_dynamic=True
)
default_float_qparams_observer = PerChannelMinMaxObserver.with_args(
    dtype=quint8, qscheme=per_channel_affine_float_qparams, ch_axis=0
)
default_fixed_qparams_range_neg1to1_observer = FixedQParamsObserver.with_args(
    scale=2 / 256, zero_point=128, dtype=quint8, quant_min=0, quant_max=255
)
default_fixed_qparams_range_0to1_observer = FixedQParamsObserver.with_args(
    scale=1 / 256, zero_point=0, dtype=quint8, quant_min=0, quant_max=255
)
default_symmetric_fixed_qparams_observer = default_fixed_qparams_range_neg1to1_observer
default_affine_fixed_qparams_observer = default_fixed_qparams_range_0to1_observer
default_reuse_input_observer = ReuseInputObserver
