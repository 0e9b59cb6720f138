"""Which observers watch the activations and the weights of a layer."""

from __future__ import annotations

import functools
import warnings
from typing import Any, NamedTuple

from weft._base.dtype import float16, float32, qint8
from weft._base.types import Kwargs
from weft.ao._observing.fake_quantize import (
    FakeQuantize,
    FakeQuantizeBase,
    FusedMovingAvgObsFakeQuantize,
    default_dynamic_fake_quant,
    default_embedding_fake_quant,
    default_fake_quant,
    default_fused_act_fake_quant,
    default_fused_per_channel_wt_fake_quant,
    default_fused_wt_fake_quant,
    default_per_channel_weight_fake_quant,
    default_weight_fake_quant,
    fused_per_channel_wt_fake_quant_range_neg_127_to_127,
    fused_wt_fake_quant_range_neg_127_to_127,
)
from weft.ao._observing.observer import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    NoopObserver,
    PartialWrapper,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
    default_debug_observer,
    default_dynamic_quant_observer,
    default_float_qparams_observer,
    default_observer,
    default_per_channel_weight_observer,
    default_placeholder_observer,
    default_reuse_input_observer,
    default_weight_observer,
    per_channel_weight_observer_range_neg_127_to_127,
    weight_observer_range_neg_127_to_127,
)
from weft.ao._observing.utils import AnyQConfig
from weft.errors import PreconditionError, ValueRangeError
from weft.nn._conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from weft.nn._linear import Identity
from weft.nn._module import Module


class _Pair(NamedTuple):
    activation: Any
    weight: Any


class QConfig(_Pair):
    """Classes of observers, or such with arguments (`MinMaxObserver.with_args(...)`), for activations and weights."""

    __slots__ = ()

    def __new__(cls, activation: object, weight: object) -> QConfig:
        if isinstance(activation, Module) or isinstance(weight, Module):
            raise ValueRangeError(
                "QConfig received observer instance, please pass observer class instead. Use MyObserver.with_args(x=1) "
                "to override arguments to constructor if needed"
            )
        return super().__new__(cls, activation, weight)


class QConfigDynamic(QConfig):
    """The former class for dynamic quantization; `QConfig` serves as well."""

    __slots__ = ()

    def __new__(cls, activation: object = Identity, weight: object = Identity) -> QConfigDynamic:
        warnings.warn("`QConfigDynamic` is deprecated, please use `QConfig` instead", FutureWarning, stacklevel=2)
        pair: Any = super().__new__(cls, activation, weight)
        return pair


QConfigAny = QConfig | None

default_qconfig = QConfig(default_observer, default_weight_observer)
default_debug_qconfig = QConfig(default_debug_observer, default_weight_observer)
default_per_channel_qconfig = QConfig(default_observer, default_per_channel_weight_observer)
default_dynamic_qconfig = QConfig(default_dynamic_quant_observer, default_weight_observer)
float16_dynamic_qconfig = QConfig(
    PlaceholderObserver.with_args(dtype=float16, is_dynamic=True), PlaceholderObserver.with_args(dtype=float16)
)
float16_static_qconfig = QConfig(
    PlaceholderObserver.with_args(dtype=float16), PlaceholderObserver.with_args(dtype=float16)
)
per_channel_dynamic_qconfig = QConfig(default_dynamic_quant_observer, default_per_channel_weight_observer)
float_qparams_weight_only_qconfig = QConfig(default_placeholder_observer, default_float_qparams_observer)
default_quint8_weight_qconfig = QConfig(HistogramObserver, MinMaxObserver)
default_qat_qconfig = QConfig(default_fake_quant, default_weight_fake_quant)
default_dynamic_qat_qconfig = QConfig(default_dynamic_fake_quant, default_weight_fake_quant)
default_weight_only_qconfig = QConfig(Identity, default_weight_fake_quant)
default_activation_only_qconfig = QConfig(default_fake_quant, Identity)
default_qat_qconfig_v2 = QConfig(default_fused_act_fake_quant, default_fused_wt_fake_quant)
default_reuse_input_qconfig = QConfig(default_reuse_input_observer, NoopObserver)
default_embedding_qat_qconfig = QConfig(NoopObserver.with_args(dtype=float32), default_embedding_fake_quant)

_SYMMETRIC = HistogramObserver.with_args(dtype=qint8, reduce_range=False, eps=2**-12)
default_symmetric_qnnpack_qconfig = QConfig(_SYMMETRIC, weight_observer_range_neg_127_to_127)
default_per_channel_symmetric_qnnpack_qconfig = QConfig(_SYMMETRIC, per_channel_weight_observer_range_neg_127_to_127)
_SYMMETRIC_QAT = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=-128, quant_max=127, dtype=qint8, reduce_range=False, eps=2**-12
)
default_symmetric_qnnpack_qat_qconfig = QConfig(_SYMMETRIC_QAT, fused_wt_fake_quant_range_neg_127_to_127)
default_per_channel_symmetric_qnnpack_qat_qconfig = QConfig(
    _SYMMETRIC_QAT, fused_per_channel_wt_fake_quant_range_neg_127_to_127
)

_REDUCES_RANGE = {"fbgemm": True, "x86": True, "qnnpack": False, "onednn": False}
"""Whether activations have 7 bits: PyTorch's kernels for these processors may overflow with 8."""


def _require_known(backend: str, version: int, versions: tuple[int, ...]) -> None:
    if backend not in _REDUCES_RANGE:
        raise PreconditionError(f"backend: {backend} not supported. backend must be one of {list(_REDUCES_RANGE)}")
    if version not in versions:
        raise PreconditionError(f"Version number: {version} is not supported; use one of {list(versions)}")


def get_default_qconfig(backend: str = "x86", version: int = 0) -> QConfig:
    """The observers for calibration, as PyTorch has them for `backend`: "x86", "fbgemm", "qnnpack" or "onednn"."""
    _require_known(backend, version, (0,))
    weight = default_weight_observer if backend == "qnnpack" else default_per_channel_weight_observer
    return QConfig(HistogramObserver.with_args(reduce_range=_REDUCES_RANGE[backend]), weight)


def get_default_qat_qconfig(backend: str = "x86", version: int = 1) -> QConfig:
    """The fake quantization for training. In version 1 it is the fused one, with which a step can be compiled."""
    _require_known(backend, version, (0, 1))
    levels = {"observer": MovingAverageMinMaxObserver, "quant_min": 0, "quant_max": 255}
    if backend != "onednn":
        levels["reduce_range"] = _REDUCES_RANGE[backend]
    per_tensor = backend == "qnnpack"
    if version == 0:
        weight = default_weight_fake_quant if per_tensor else default_per_channel_weight_fake_quant
        return QConfig(FakeQuantize.with_args(**levels), weight)
    weight = default_fused_wt_fake_quant if per_tensor else default_fused_per_channel_wt_fake_quant
    return QConfig(FusedMovingAvgObsFakeQuantize.with_args(**levels), weight)


def require_valid(qconfig: AnyQConfig, mod: Module) -> None:
    """`AssertionError` for a transposed convolution whose weights would get a grid for each of the wrong channels."""
    transposed = ConvTranspose1d | ConvTranspose2d | ConvTranspose3d
    if qconfig is None or qconfig.weight is None or not isinstance(mod, transposed):
        return
    if isinstance(qconfig.weight(), PerChannelMinMaxObserver | MovingAveragePerChannelMinMaxObserver):
        raise PreconditionError(
            "Per channel weight observer is not supported yet for ConvTranspose{n}d; use default_weight_observer"
        )


def qconfig_equals(q1: QConfigAny, q2: QConfigAny) -> bool:
    """Whether two `QConfig`s have the same classes with the same arguments."""
    if q1 is None or q2 is None:
        return q1 is q2
    return are_same(q1.activation, q2.activation) and are_same(q1.weight, q2.weight)


def are_same(a: object, b: object) -> bool:
    if not (isinstance(a, PartialWrapper) and isinstance(b, PartialWrapper)):
        return a == b
    (target, keywords), (other, others) = _unwrapped(a), _unwrapped(b)
    if keywords.keys() != others.keys():
        return False
    return are_same(target, other) and all(are_same(value, others[name]) for name, value in keywords.items())


def _unwrapped(wrapper: PartialWrapper) -> tuple[object, Kwargs]:
    """The class, and all arguments that partial constructors add."""
    target: object = wrapper
    keywords: Kwargs = {}
    while isinstance(target, PartialWrapper | functools.partial):
        inner = target.p if isinstance(target, PartialWrapper) else target  # pyright: ignore[reportUnknownVariableType]  of any function
        keywords = {**inner.keywords, **keywords}
        target = inner.func
    return target, keywords


def activation_is_memoryless(qconfig: AnyQConfig) -> bool:
    """Whether the grid of activations is that of the last input alone: an observer with averaging constant 1."""
    activation = qconfig.activation()
    if isinstance(activation, FakeQuantizeBase):
        activation = getattr(activation, "activation_post_process", activation)
    return getattr(activation, "averaging_constant", None) == 1
