"""Modules that round numbers to those of a grid, as quantization will, and pass gradients through."""

from __future__ import annotations

from abc import ABC, abstractmethod

from weft._base.dtype import float32, int32, int64, qint8, quint8, uint8
from weft._base.layout import (
    per_channel_affine_float_qparams,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
)
from weft._base.limits import iinfo
from weft._base.types import Arg, SavedState
from weft._tensor.composite.quantized import (
    fake_quantize_per_channel_affine,
    fake_quantize_per_tensor_affine,
    fused_moving_avg_obs_fake_quant,
)
from weft._tensor.convert import tensor
from weft._tensor.tensor import Tensor
from weft.ao._observing.base import PartialWrapper, require_tensor
from weft.ao._observing.observer import (
    FixedQParamsObserver,
    HistogramObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
    with_args,
)
from weft.ao._observing.utils import is_per_channel, is_per_tensor
from weft.errors import PreconditionError
from weft.nn._module import Module


class FakeQuantizeBase(ABC, Module):
    """A module that rounds its input to numbers on a grid, with flags for the rounding and for the observer."""

    fake_quant_enabled: Tensor
    observer_enabled: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("fake_quant_enabled", tensor([1], dtype=uint8))
        self.register_buffer("observer_enabled", tensor([1], dtype=uint8))

    @abstractmethod
    def forward(self, X: Tensor) -> Tensor:
        """The rounded input."""

    @abstractmethod
    def calculate_qparams(self, **kwargs: Arg) -> tuple[Tensor, Tensor]:
        """The scales and the zero points."""

    def enable_fake_quant(self, enabled: bool = True) -> None:
        """Round from now on, or do not."""
        self.fake_quant_enabled.fill_(int(enabled))

    def disable_fake_quant(self) -> None:
        """Do not round from now on."""
        self.enable_fake_quant(False)

    def enable_observer(self, enabled: bool = True) -> None:
        """Observe from now on, or keep the grid."""
        self.observer_enabled.fill_(int(enabled))

    def disable_observer(self) -> None:
        """Keep the grid from now on."""
        self.enable_observer(False)

    @classmethod
    def with_args(cls, **kwargs: Arg) -> PartialWrapper:
        """A constructor of the class with these arguments."""
        return with_args(cls, **kwargs)


class FakeQuantize(FakeQuantizeBase):
    """Rounds its input to the grid that an observer chooses: `(clamp(round(x / scale) + zero) - zero) scale`.

    observer         a class of observers, or one with arguments, to which `observer_kwargs` are added
    quant_min        the lowest level, and `quant_max` the highest
    is_dynamic       whether activations get a grid of their own at each call of the quantized model
    """

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self,
        observer: Arg = MovingAverageMinMaxObserver,
        quant_min: int | None = None,
        quant_max: int | None = None,
        is_dynamic: bool = False,
        **observer_kwargs: Arg,
    ) -> None:
        super().__init__()
        if quant_min is not None and quant_max is not None:
            dtype = observer_kwargs.get("dtype", quint8)
            if hasattr(observer, "p"):
                dtype = getattr(observer.p, "keywords", {}).get("dtype", dtype)
            limits = iinfo(dtype)
            if not limits.min <= quant_min <= quant_max <= limits.max:
                raise PreconditionError(
                    f"quant_min must be less than or equal to quant_max, and both within {dtype}: got {quant_min} and "
                    f"{quant_max}"
                )
            observer_kwargs |= {"quant_min": quant_min, "quant_max": quant_max}
        self.activation_post_process = observer(**observer_kwargs, is_dynamic=is_dynamic)
        observed = self.activation_post_process
        self.quant_min, self.quant_max = observed.quant_min, observed.quant_max
        self.is_dynamic, self.dtype, self.qscheme = observed.is_dynamic, observed.dtype, observed.qscheme
        zero_point_type = float32 if self.qscheme is per_channel_affine_float_qparams else int32
        self.register_buffer("scale", tensor([1.0], dtype=float32))
        self.register_buffer("zero_point", tensor([0], dtype=zero_point_type))
        self.ch_axis = getattr(observed, "ch_axis", -1)
        if not (is_per_channel(self.qscheme) or is_per_tensor(self.qscheme)):
            raise PreconditionError(
                "Only per channel and per tensor quantization are supported in fake quantize got qscheme: "
                f"{self.qscheme}"
            )
        self.is_per_channel = is_per_channel(self.qscheme)

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The observer's scales and zero points."""
        return self.activation_post_process.calculate_qparams()

    def forward(self, X: Tensor) -> Tensor:
        """The input, rounded if that is enabled."""
        require_tensor(self, X)
        if self.observer_enabled.item():
            self.activation_post_process(X.detach())
            for held, new in zip((self.scale, self.zero_point), self.calculate_qparams(), strict=True):
                held.resize_(new.shape).copy_(new)
        if not self.fake_quant_enabled.item():
            return X
        levels = self.activation_post_process.quant_min, self.activation_post_process.quant_max
        if self.is_per_channel:
            return fake_quantize_per_channel_affine(X, self.scale, self.zero_point, self.ch_axis, *levels)
        return fake_quantize_per_tensor_affine(X, self.scale, self.zero_point, *levels)

    def _flags(self) -> str:
        return f"fake_quant_enabled={self.fake_quant_enabled}, observer_enabled={self.observer_enabled}"

    def _levels(self) -> str:
        return f"quant_min={self.activation_post_process.quant_min}, quant_max={self.activation_post_process.quant_max}"

    def extra_repr(self) -> str:
        """Flags, levels and grid."""
        return (
            f"{self._flags()}, {self._levels()}, dtype={self.dtype}, qscheme={self.qscheme}, ch_axis={self.ch_axis}, "
            f"scale={self.scale}, zero_point={self.zero_point}"
        )

    def _renew_entries(self, state_dict: SavedState, prefix: str, version: int | None) -> None:
        """Take grids of any number of channels."""
        for name in ("scale", "zero_point"):
            if f"{prefix}{name}" in state_dict:
                getattr(self, name).resize_(state_dict[f"{prefix}{name}"].shape)


class FixedQParamsFakeQuantize(FakeQuantize):
    """Rounds its input to a grid that is known beforehand; its observer is a `FixedQParamsObserver`."""

    def __init__(self, observer: Module) -> None:
        super().__init__(observer=observer)
        if type(self.activation_post_process) is not FixedQParamsObserver:
            raise PreconditionError(
                f"{type(self).__name__}'s observer must be a FixedQParamsObserver, but is a "
                f"{type(self.activation_post_process).__name__}"
            )
        self._observer_ctr = observer
        self.scale = self.activation_post_process.scale
        self.zero_point = self.activation_post_process.zero_point

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """The scale and the zero point."""
        return self.scale, self.zero_point

    def extra_repr(self) -> str:
        """Flags, grid and levels."""
        return (
            f"{self._flags()}, scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}, {self._levels()}, "
            f"qscheme={self.qscheme}"
        )


class FusedMovingAvgObsFakeQuantize(FakeQuantize):
    """As `FakeQuantize` with an observer of moving averages. Nothing waits for numbers, so a step can be compiled."""

    def __init__(
        self,
        observer: Arg = MovingAverageMinMaxObserver,
        quant_min: int = 0,
        quant_max: int = 255,
        **observer_kwargs: Arg,
    ) -> None:
        super().__init__(observer, quant_min, quant_max, **observer_kwargs)
        if not isinstance(
            self.activation_post_process, MovingAverageMinMaxObserver | MovingAveragePerChannelMinMaxObserver
        ):
            raise PreconditionError(
                "Fused observer+fake_quant module only works with MovingAverageMinMaxObserver, but got "
                f"{type(self.activation_post_process).__name__}"
            )
        self.register_buffer("fake_quant_enabled", tensor([1], dtype=int64))
        self.register_buffer("observer_enabled", tensor([1], dtype=int64))
        self.is_symmetric_quant = self.qscheme in (per_tensor_symmetric, per_channel_symmetric)

    def extra_repr(self) -> str:
        """Flags, grid and levels."""
        return (
            f"{self._flags()}, scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}, {self._levels()}, "
            f"qscheme={self.qscheme}, reduce_range={self.activation_post_process.reduce_range}"
        )

    def forward(self, X: Tensor) -> Tensor:
        """The input, rounded if that is enabled."""
        require_tensor(self, X)
        observed = self.activation_post_process
        return fused_moving_avg_obs_fake_quant(
            X,
            self.observer_enabled,
            self.fake_quant_enabled,
            observed.min_val,
            observed.max_val,
            self.scale,
            self.zero_point,
            observed.averaging_constant,
            observed.quant_min,
            observed.quant_max,
            self.ch_axis,
            self.is_per_channel,
            self.is_symmetric_quant,
        )


# --- with the usual arguments -------------------------------------------------------------------------------------

_ACTIVATION = {"quant_min": 0, "quant_max": 255, "dtype": quint8}
_WEIGHT = {"quant_min": -128, "quant_max": 127, "dtype": qint8}
_NARROW = {"quant_min": -127, "quant_max": 127, "dtype": qint8, "eps": 2**-12}
_OF_TENSOR = {"observer": MovingAverageMinMaxObserver, "qscheme": per_tensor_symmetric}
_OF_CHANNELS = {"observer": MovingAveragePerChannelMinMaxObserver, "qscheme": per_channel_symmetric}

default_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, **_ACTIVATION, qscheme=per_tensor_affine, reduce_range=True
)
default_weight_fake_quant = FakeQuantize.with_args(**_OF_TENSOR, **_WEIGHT, reduce_range=False)
default_dynamic_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, **_ACTIVATION, is_dynamic=True, averaging_constant=1
)
default_fixed_qparams_range_neg1to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_neg1to1_observer
)
default_fixed_qparams_range_0to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_0to1_observer
)
default_symmetric_fixed_qparams_fake_quant = default_fixed_qparams_range_neg1to1_fake_quant
default_affine_fixed_qparams_fake_quant = default_fixed_qparams_range_0to1_fake_quant
default_per_channel_weight_fake_quant = FakeQuantize.with_args(**_OF_CHANNELS, **_WEIGHT, reduce_range=False, ch_axis=0)
default_embedding_fake_quant = FakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver,
    **_ACTIVATION,
    qscheme=per_channel_affine_float_qparams,
    ch_axis=0,
    averaging_constant=1,
)
default_histogram_fake_quant = FakeQuantize.with_args(
    observer=HistogramObserver, **_ACTIVATION, qscheme=per_tensor_affine, reduce_range=True
)
default_fused_act_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, **_ACTIVATION
)
default_fused_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(**_OF_TENSOR, **_WEIGHT)
default_fused_per_channel_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(**_OF_CHANNELS, **_WEIGHT)
fused_wt_fake_quant_range_neg_127_to_127 = FusedMovingAvgObsFakeQuantize.with_args(**_OF_TENSOR, **_NARROW)
fused_per_channel_wt_fake_quant_range_neg_127_to_127 = FusedMovingAvgObsFakeQuantize.with_args(
    **_OF_CHANNELS, **_NARROW
)


# --- for module.apply(...) ----------------------------------------------------------------------------------------


def disable_fake_quant(mod: Module) -> None:
    """Do not round from now on, if the module does: `model.apply(disable_fake_quant)`."""
    if isinstance(mod, FakeQuantizeBase):
        mod.disable_fake_quant()


def enable_fake_quant(mod: Module) -> None:
    """Round from now on, if the module can: `model.apply(enable_fake_quant)`."""
    if isinstance(mod, FakeQuantizeBase):
        mod.enable_fake_quant()


def disable_observer(mod: Module) -> None:
    """Keep the grid from now on, if the module has one: `model.apply(disable_observer)`."""
    if isinstance(mod, FakeQuantizeBase):
        mod.disable_observer()


def enable_observer(mod: Module) -> None:
    """Observe from now on, if the module can: `model.apply(enable_observer)`."""
    if isinstance(mod, FakeQuantizeBase):
        mod.enable_observer()
