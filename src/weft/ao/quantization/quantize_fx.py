"""Graph-mode quantization: `prepare_fx` a model, run it on data, and `convert_fx` it.

Models are traced by `weft.fx`, so that functions and operators are quantized like layers, and layers are fused,
without changes of the program.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from weft._base.guards import is_a, is_mapping
from weft._base.types import Arg, Args
from weft.ao.nn.quantized.modules.functional_modules import FloatFunctional, FXFloatFunctional
from weft.ao.quantization.backend_config.native import BackendConfig, require_native
from weft.ao.quantization.fx.convert import convert
from weft.ao.quantization.fx.custom_config import (
    ConvertCustomConfig,
    FuseCustomConfig,
    PrepareCustomConfig,
    StandaloneModuleConfigEntry,
    config_of,
)
from weft.ao.quantization.fx.fuse import fuse
from weft.ao.quantization.fx.prepare import KEY, prepare
from weft.ao.quantization.fx.qconfigs import Scope
from weft.ao.quantization.fx.tracer import QuantizationTracer
from weft.ao.quantization.qconfig_mapping import QConfigMapping
from weft.errors import ArgumentError, LacksAttributeError, PreconditionError, UnsupportedError, ValueRangeError
from weft.fx.graph_module import USER_PRESERVED_ATTRIBUTES, GraphModule
from weft.nn._module import Module

if TYPE_CHECKING:
    from weft.ao._observing.qconfig import QConfigAny


def _with_attributes(model: GraphModule, source: Module, names: Iterable[str]) -> GraphModule:
    """The model, with attributes of another one."""
    for name in names:
        if not hasattr(source, name):
            raise LacksAttributeError(f"preserved_attributes: {type(source).__name__} has no attribute {name!r}")
    kept = {name: getattr(source, name) for name in names}
    model.meta[USER_PRESERVED_ATTRIBUTES] = {**model.meta.get(USER_PRESERVED_ATTRIBUTES, {}), **kept}
    for name, value in kept.items():
        setattr(model, name, value)
    return model


def _mapping(entry: object) -> QConfigMapping:
    """The mapping, or what a dict says of it; `AssertionError` for anything else."""
    if not (isinstance(entry, QConfigMapping) or is_mapping(entry)):
        raise PreconditionError(
            f"qconfig_mapping must be a QConfigMapping, but got {type(entry).__name__}: pass "
            "get_default_qconfig_mapping(), or QConfigMapping().set_global(qconfig)"
        )
    return config_of(entry, QConfigMapping)


def _require_float(model: object) -> None:
    """`TypeError` for what is no module, `AssertionError` for a model that has been prepared or converted before."""
    if not isinstance(model, Module):
        raise ArgumentError(f"graph mode quantizes modules, but got a {type(model).__name__}")
    if isinstance(model, GraphModule) and KEY in model.meta:
        raise PreconditionError("the model has been prepared before: prepare the float model, or convert_fx this one")


def _traced(model: Module, tracer: QuantizationTracer) -> GraphModule:
    """The graph of a model, in which calls of a `FloatFunctional` are operators: observers are added to these."""
    swapped = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if isinstance(child, FloatFunctional)
    ]
    try:
        for parent, name, _ in swapped:
            parent._modules[name] = FXFloatFunctional()
        return GraphModule(model, tracer.trace(model))
    finally:
        for parent, name, child in swapped:
            parent._modules[name] = child


def _prepare(
    model: Module, qconfig_mapping: object, custom_config: object, backend_config: object, *, is_qat: bool
) -> GraphModule:
    require_native(backend_config)
    _require_float(model)
    mapping = _mapping(qconfig_mapping)
    custom: PrepareCustomConfig = config_of(custom_config or {}, PrepareCustomConfig)
    # What has a treatment of its own, or cannot be traced, stays one node.
    names = [*custom.non_traceable_module_names, *custom.standalone_module_names]
    users = [kind for kinds in custom.float_to_observed_mapping.values() for kind in kinds]
    tracer = QuantizationTracer(
        names, [*custom.non_traceable_module_classes, *custom.standalone_module_classes, *users]
    )
    graph_module = _traced(model, tracer)
    scopes: dict[str, Scope] = dict(tracer.node_name_to_scope)
    fuse(graph_module, is_qat=is_qat)

    def prepare_part(module: Module, entry: StandaloneModuleConfigEntry, qconfig: QConfigAny) -> GraphModule:
        own = entry.qconfig_mapping or QConfigMapping().set_global(qconfig)
        return _prepare(module, own, entry.prepare_custom_config, entry.backend_config or backend_config, is_qat=is_qat)

    prepare(graph_module, mapping, scopes, custom, prepare_part, is_qat=is_qat)
    return _with_attributes(graph_module, model, custom.preserved_attributes)


def fuse_fx(
    model: Module,
    fuse_custom_config: FuseCustomConfig | dict[str, object] | None = None,
    backend_config: BackendConfig | None = None,
) -> GraphModule:
    """The graph of a model in evaluation mode, in which normalisation is folded in, and layers and ReLUs are one."""
    require_native(backend_config)
    _require_float(model)
    config: FuseCustomConfig = config_of(fuse_custom_config or {}, FuseCustomConfig)
    graph_module = _traced(model, QuantizationTracer((), ()))
    fuse(graph_module, is_qat=False)
    return _with_attributes(graph_module, model, config.preserved_attributes)


def prepare_fx(
    model: Module,
    qconfig_mapping: QConfigMapping | dict[str, object],
    example_inputs: Args,
    prepare_custom_config: PrepareCustomConfig | dict[str, object] | None = None,
    _equalization_config: object = None,
    backend_config: BackendConfig | None = None,
) -> GraphModule:
    """The graph of a model in evaluation mode, fused, and with observers where `qconfig_mapping` asks for them.

    Run it on some data, then `convert_fx` it. `example_inputs` is not needed here: what has tensors is clear from the
    program. Layers are shared with the model, as far as they are not fused. `TraceError` where the program depends on
    values of its inputs; such modules can be named in a `PrepareCustomConfig` and stay on floats.
    """
    del example_inputs
    if _equalization_config is not None:
        raise UnsupportedError("prepare_fx(_equalization_config=...): there is no equalization; leave it out")
    return _prepare(model, qconfig_mapping, prepare_custom_config, backend_config, is_qat=False)


def prepare_qat_fx(
    model: Module,
    qconfig_mapping: QConfigMapping | dict[str, object],
    example_inputs: Args,
    prepare_custom_config: PrepareCustomConfig | dict[str, object] | None = None,
    backend_config: BackendConfig | None = None,
) -> GraphModule:
    """The graph of a model in training mode, with fake quantization of weights and activations. See `prepare_fx`."""
    del example_inputs
    return _prepare(model, qconfig_mapping, prepare_custom_config, backend_config, is_qat=True)


def convert_fx(
    graph_module: GraphModule,
    convert_custom_config: ConvertCustomConfig | dict[str, object] | None = None,
    _remove_qconfig: bool = True,
    qconfig_mapping: QConfigMapping | dict[str, object] | None = None,
    backend_config: BackendConfig | None = None,
    keep_original_weights: bool = False,
) -> GraphModule:
    """The quantized model that a prepared one has become, on the grids that were observed.

    It takes and returns floats, unless a `PrepareCustomConfig` said otherwise. The prepared model stays as it is. A
    `qconfig_mapping` can be that of `prepare_fx` with None for parts that are to stay on floats.
    """
    del _remove_qconfig
    require_native(backend_config)
    if not is_a(graph_module, GraphModule):
        raise ValueRangeError(
            f"input model must be a GraphModule, Got type:{type(graph_module)}: convert what prepare_fx has returned"
        )
    if KEY not in graph_module.meta:
        raise PreconditionError("incoming model must be produced by prepare_fx")
    if keep_original_weights:
        raise UnsupportedError(
            "convert_fx(keep_original_weights=True): the converted model has quantized weights only; the original ones "
            "are in the prepared model, which stays as it is"
        )
    config: ConvertCustomConfig = config_of(convert_custom_config or {}, ConvertCustomConfig)
    result = convert(graph_module, config, _mapping(qconfig_mapping) if qconfig_mapping else None)
    kept = graph_module.meta.get(USER_PRESERVED_ATTRIBUTES, {})
    return _with_attributes(result, graph_module, [*kept, *config.preserved_attributes])


def convert_to_reference_fx(graph_module: GraphModule, *args: Arg, **kwargs: Arg) -> GraphModule:
    """Raises `NotImplementedError`: PyTorch's form of a quantized model for other libraries is not made."""
    del graph_module, args, kwargs
    raise UnsupportedError("convert_to_reference_fx: there are no reference modules; use convert_fx")
