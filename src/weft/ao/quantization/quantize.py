"""Eager-mode quantization: `prepare` a model, run it on data, and `convert` it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from weft._base.device import META, DeviceLike, device
from weft._base.dtype import DType, float16, qint8, quint8
from weft._base.guards import is_dict
from weft._base.types import AnyCallable, Arg, Args, Kwargs, Result
from weft._base.usage import log_api_usage_once
from weft._tensor.tensor import Tensor
from weft.ao._observing.fake_quantize import FakeQuantizeBase
from weft.ao._observing.observer import ObserverBase
from weft.ao._observing.qconfig import (
    activation_is_memoryless,
    default_dynamic_qconfig,
    float16_dynamic_qconfig,
    float_qparams_weight_only_qconfig,
    require_valid,
)
from weft.ao._observing.utils import has_no_children_ignoring_parametrizations
from weft.ao.nn import quantizable, quantized
from weft.ao.nn.intrinsic.modules.fused import FusedModule
from weft.ao.nn.quantized.modules.functional_modules import FloatFunctional, QFunctional
from weft.ao.quantization.quantization_mappings import (
    DEFAULT_MODULE_TO_ACT_POST_PROCESS,
    get_default_dynamic_quant_module_mappings,
    get_default_qat_module_mappings,
    get_default_qconfig_propagation_list,
    get_default_static_quant_module_mappings,
    no_observer_set,
)
from weft.ao.quantization.stubs import DeQuantStub, QuantWrapper
from weft.errors import DTypeError, PreconditionError, UnsupportedError, ValueRangeError
from weft.nn import (
    GRU,
    LSTM,
    Dropout,
    Embedding,
    EmbeddingBag,
    GRUCell,
    Linear,
    LSTMCell,
    MultiheadAttention,
    RNNCell,
    Sequential,
)
from weft.nn._lookup import AnyModule
from weft.nn._module import Module
from weft.nn._tables import children_of, forward_hooks_of, forward_pre_hooks_of
from weft.nn.utils.parametrize import type_before_parametrizations as type_of

if TYPE_CHECKING:
    from weft.ao.quantization.quantization_mappings import ClassMapping
    from weft.nn.utils.rnn import PackedSequence

_M = TypeVar("_M", bound=Module)


def get_default_custom_config_dict() -> dict[str, ClassMapping]:
    """Modules that are swapped by default for ones that can be observed, and these for quantized ones."""
    return {
        "float_to_observed_custom_module_class": {
            LSTM: quantizable.LSTM,
            MultiheadAttention: quantizable.MultiheadAttention,
        },
        "observed_to_quantized_custom_module_class": {
            quantizable.LSTM: quantized.LSTM,
            quantizable.MultiheadAttention: quantized.MultiheadAttention,
        },
    }


# --- which QConfig a module has -----------------------------------------------------------------------------------


def propagate_qconfig_(
    module: Module, qconfig_dict: dict[object, object] | None = None, prepare_custom_config_dict: object = None
) -> None:
    """Set `qconfig` of all modules of a model: their own, that of their path or type in a dict, or their parent's."""
    del prepare_custom_config_dict
    _propagate(module, qconfig_dict or {}, None, "")


def _propagate(module: Module, by_key: dict[object, object], inherited: object, path: str) -> None:
    qconfig = by_key.get(path, by_key.get(type_of(module), inherited))
    qconfig = getattr(module, "qconfig", qconfig)
    require_valid(qconfig, module)
    module.qconfig = qconfig
    for name, child in module.named_children():
        _propagate(child, by_key, qconfig, f"{path}.{name}" if path else name)


def _is_to_be_observed(module: Module) -> bool:
    return getattr(module, "qconfig", None) is not None


# --- observers ----------------------------------------------------------------------------------------------------


def _observer_forward_hook(self: AnyModule, input: Tensor | PackedSequence, output: Result) -> Result:
    del input
    return self.activation_post_process(output)


def _observer_forward_pre_hook(self: AnyModule, input: Tensor | PackedSequence) -> Result:
    return self.activation_post_process(input[0])


def _device_of(module: Module) -> device | None:
    """The device of a module's tensors, or None; `AssertionError` for several."""
    tensors = [*module.parameters(), *module.buffers()]
    devices = {x.device for x in tensors if x.device is not META}
    if len(devices) > 1:
        names = ", ".join(sorted(map(str, devices)))
        raise PreconditionError(f"quantization works with modules on a single device, but got devices {names}")
    return devices.pop() if devices else None


def _observe(module: Module, device: DeviceLike | None, make: AnyCallable | None = None) -> None:
    """Let an observer look at a module's results; at its inputs, if it keeps nothing of earlier ones."""
    if not _is_to_be_observed(module) or isinstance(module, DeQuantStub):
        return
    observer = (make or module.qconfig.activation)()
    module.add_module("activation_post_process", observer.to(device) if device is not None else observer)
    if activation_is_memoryless(module.qconfig):
        module.register_forward_pre_hook(_observer_forward_pre_hook, prepend=True)
    else:
        module.register_forward_hook(_observer_forward_hook, prepend=True)


def _add_observers(
    module: Module,
    types: Collection[object],
    non_leaf: Collection[object],
    device: DeviceLike | None,
    swaps: ClassMapping,
) -> None:
    for name, child in module.named_children():
        kind = type_of(child)
        # It does nothing in evaluation, so its input's grid is its result's.
        if kind is Dropout:
            continue
        if issubclass(kind, FloatFunctional | QFunctional):
            if _is_to_be_observed(child):
                observer = child.qconfig.activation()
                child.activation_post_process = observer.to(device) if device is not None else observer
        elif isinstance(child, FusedModule) or kind in non_leaf:
            _observe(child, device)
        elif child.training and kind in DEFAULT_MODULE_TO_ACT_POST_PROCESS:
            _observe(child, device, DEFAULT_MODULE_TO_ACT_POST_PROCESS[kind])
        elif _is_to_be_observed(child) and kind in swaps:
            observed = swaps[kind].from_float(child)
            setattr(module, name, observed)
            if not isinstance(observed, tuple(no_observer_set())):
                _observe(observed, device)
        else:
            _add_observers(child, types, non_leaf, device, swaps)
    is_leaf = has_no_children_ignoring_parametrizations(module) or hasattr(module, "weight_fake_quant")
    if is_leaf and not isinstance(module, Sequential) and type_of(module) in types:
        _observe(module, device)


def add_quant_dequant(module: Module) -> Module:
    """Put each module without children that has a `qconfig` between two stubs, in place; returns the model.

    A model that is such a module itself is returned in a `QuantWrapper`.
    """
    if has_no_children_ignoring_parametrizations(module) and getattr(module, "qconfig", None):
        return QuantWrapper(module)
    for name, child in module.named_children():
        children_of(module)[name] = add_quant_dequant(child)
    return module


def prepare(
    model: _M,
    inplace: bool = False,
    allow_list: Collection[object] | None = None,
    observer_non_leaf_module_list: Collection[object] | None = None,
    prepare_custom_config_dict: Kwargs | None = None,
) -> _M:
    """A copy of a model (itself if `inplace`) with observers at the modules that are to be quantized.

    `qconfig` of the model, or of its parts, says which observers; parts whose `qconfig` is None stay as they are.
    `allow_list` has the types of modules that are observed, by default all that can be quantized.
    """
    log_api_usage_once("quantization_api.quantize.prepare")
    config = get_default_custom_config_dict() if prepare_custom_config_dict is None else prepare_custom_config_dict
    swaps = config.get("float_to_observed_custom_module_class", {})
    model = model if inplace else copy.deepcopy(model)
    propagate_qconfig_(model)
    if not any(getattr(module, "qconfig", None) for module in model.modules()):
        warnings.warn(
            "None of the submodule got qconfig applied. Make sure you passed correct configuration through "
            "`qconfig_dict` or by assigning the `.qconfig` attribute directly on submodules",
            UserWarning,
            stacklevel=2,
        )
    types = get_default_qconfig_propagation_list() if allow_list is None else allow_list
    _add_observers(model, types, observer_non_leaf_module_list or (), _device_of(model), swaps)
    return model


# --- swapping -----------------------------------------------------------------------------------------------------


def swap_module(
    mod: Module,
    mapping: ClassMapping,
    custom_module_class_mapping: ClassMapping | None = None,
    use_precomputed_fake_quant: bool = False,
) -> Module:
    """The quantized form of a module that has a `qconfig` and whose type is in a mapping; other modules as they are.

    Hooks move to it, without those of observers.
    """
    if not _is_to_be_observed(mod):
        return mod
    kind, custom = type_of(mod), custom_module_class_mapping or {}
    if kind in custom:
        result = custom[kind].from_observed(mod)
    elif kind in mapping:
        make, more = mapping[kind].from_float, {}
        if use_precomputed_fake_quant:
            more = {"use_precomputed_fake_quant": True}
        device = _device_of(mod)
        result = make(mod, **more)
        if device is not None:
            result = result.to(device)
    else:
        return mod
    for hook in forward_pre_hooks_of(mod).values():
        # Observers have done their work; their hooks would look for an observer that is gone.
        if hook is not _observer_forward_pre_hook:
            result.register_forward_pre_hook(hook)
    for hook in forward_hooks_of(mod).values():
        if hook is not _observer_forward_hook:
            result.register_forward_hook(hook)
    return result


def _swap_below(module: Module, mapping: ClassMapping, custom: Kwargs, use_precomputed_fake_quant: bool) -> None:
    for name, child in list(module.named_children()):
        if not isinstance(child, FusedModule) and type_of(child) not in custom:
            _swap_below(child, mapping, custom, use_precomputed_fake_quant)
        children_of(module)[name] = swap_module(child, mapping, custom, use_precomputed_fake_quant)


def _clean(module: Module) -> None:
    """Remove `qconfig`, observers and their hooks, so that a model can be prepared anew."""
    for child in module.children():
        _clean(child)
    if hasattr(module, "qconfig"):
        del module.qconfig
    if isinstance(getattr(module, "activation_post_process", None), ObserverBase | FakeQuantizeBase):
        delattr(module, "activation_post_process")
    for hooks in (forward_pre_hooks_of(module), forward_hooks_of(module)):
        for key in [key for key, hook in hooks.items() if hook in (_observer_forward_hook, _observer_forward_pre_hook)]:
            del hooks[key]


def convert(
    module: _M,
    mapping: ClassMapping | None = None,
    inplace: bool = False,
    remove_qconfig: bool = True,
    is_reference: bool = False,
    convert_custom_config_dict: Kwargs | None = None,
    use_precomputed_fake_quant: bool = False,
) -> _M:
    """A copy of a prepared model (itself if `inplace`) with quantized modules, on the grids that were observed.

    `mapping` says what each type of module becomes, by default `DEFAULT_STATIC_QUANT_MODULE_MAPPINGS`.
    """
    log_api_usage_once("quantization_api.quantize.convert")
    if is_reference:
        raise UnsupportedError("convert(is_reference=True): there are no reference modules")
    module = module if inplace else copy.deepcopy(module)
    config = get_default_custom_config_dict() if convert_custom_config_dict is None else convert_custom_config_dict
    custom = config.get("observed_to_quantized_custom_module_class", {})
    targets = get_default_static_quant_module_mappings() if mapping is None else mapping
    _swap_below(module, targets, custom, use_precomputed_fake_quant)
    if remove_qconfig:
        _clean(module)
    return module


# --- all steps at once --------------------------------------------------------------------------------------------


def quantize(
    model: _M,
    run_fn: AnyCallable,
    run_args: Args,
    mapping: ClassMapping | None = None,
    inplace: bool = False,
) -> _M:
    """Prepare a model, call `run_fn(model, *run_args)` to calibrate it, and convert it."""
    log_api_usage_once("quantization_api.quantize.quantize")
    model = model if inplace else copy.deepcopy(model)
    prepare(model.eval(), inplace=True)
    run_fn(model, *run_args)
    return convert(model, mapping, inplace=True)


_DYNAMIC = {
    qint8: (default_dynamic_qconfig, (Linear, LSTM, GRU, LSTMCell, RNNCell, GRUCell)),
    float16: (float16_dynamic_qconfig, (Linear, LSTM, GRU, LSTMCell, RNNCell, GRUCell)),
    quint8: (float_qparams_weight_only_qconfig, (EmbeddingBag, Embedding)),
}
"""For each type of weights, the `QConfig`, and the modules that are quantized if none are named."""


def quantize_dynamic(
    model: _M,
    qconfig_spec: Any = None,
    dtype: DType = qint8,
    mapping: ClassMapping | None = None,
    inplace: bool = False,
) -> _M:
    """A copy of a model (itself if `inplace`) with quantized weights, whose inputs are put on a grid at each call.

    `qconfig_spec` is a set of types and paths of modules, whose weights get the type `dtype` (qint8, float16, or quint8
    for tables of vectors), or a dict with a `QConfig` for each.
    """
    log_api_usage_once("quantization_api.quantize.quantize_dynamic")
    if not is_dict(qconfig_spec):
        if dtype not in _DYNAMIC:
            names = ", ".join(map(str, _DYNAMIC))
            if qconfig_spec is None:
                raise ValueRangeError(
                    f"Don't know how to quantize with default settings for {dtype}. Provide full qconfig please, or "
                    f"one of {names}"
                )
            raise DTypeError(
                f"Unknown dtype specified for quantize_dynamic: {dtype}; it must be one of {names}, or give a QConfig "
                "for each type of module"
            )
        qconfig, types = _DYNAMIC[dtype]
        qconfig_spec = dict.fromkeys(types if qconfig_spec is None else qconfig_spec, qconfig)
    model = model if inplace else copy.deepcopy(model)
    propagate_qconfig_(model.eval(), qconfig_spec)
    targets = get_default_dynamic_quant_module_mappings() if mapping is None else mapping
    return convert(model, targets, inplace=True)


def prepare_qat(model: _M, mapping: ClassMapping | None = None, inplace: bool = False) -> _M:
    """A copy of a model in training mode (itself if `inplace`) with fake quantization of weights and activations."""
    log_api_usage_once("quantization_api.quantize.prepare_qat")
    if not model.training:
        raise PreconditionError("prepare_qat only works on models in training mode: call model.train() first")
    targets = get_default_qat_module_mappings() if mapping is None else mapping
    model = model if inplace else copy.deepcopy(model)
    propagate_qconfig_(model)
    convert(model, targets, inplace=True, remove_qconfig=False)
    return prepare(model, inplace=True, observer_non_leaf_module_list=set(targets.values()))


def quantize_qat(model: _M, run_fn: AnyCallable, run_args: Args, inplace: bool = False) -> _M:
    """Prepare a model for training, call `run_fn(model, *run_args)` to train it, and convert it."""
    log_api_usage_once("quantization_api.quantize.quantize_qat")
    model = model if inplace else copy.deepcopy(model)
    prepare_qat(model.train(), inplace=True)
    run_fn(model, *run_args)
    return convert(model, inplace=True)


def default_eval_fn(model: Callable[[Tensor], object], calib_data: Iterable[Arg]) -> None:
    """Run a model on the inputs of pairs (input, target), for calibration."""
    for data, _target in calib_data:
        model(data)
