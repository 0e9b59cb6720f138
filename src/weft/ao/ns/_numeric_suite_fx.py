"""The numeric suite of graph mode: weights and activations of a model beside those of its quantized form.

Nodes of two graphs are matched by what they compute. The first model is a float one, or one that `prepare_fx` has
returned; the second one that `convert_fx` has.
"""

from __future__ import annotations

from typing import Any

from weft._base.guards import is_tuple
from weft._base.types import AnyCallable, Arg, Args, PyTree, Result
from weft._tensor.tensor import Tensor
from weft.ao.ns.fx import graph_passes, n_shadows
from weft.ao.ns.fx.graph_matcher import matching_subgraphs
from weft.ao.ns.fx.qconfig_multi_mapping import QConfigMultiMapping
from weft.ao.ns.fx.utils import compute_sqnr
from weft.ao.ns.fx.weight_utils import weights_of
from weft.ao.quantization.backend_config.native import BackendConfig, require_native
from weft.ao.quantization.fx.qconfigs import Scope
from weft.ao.quantization.fx.tracer import QuantizationTracer
from weft.errors import PreconditionError, UnsupportedError
from weft.fx import Tracer
from weft.fx.graph_module import GraphModule
from weft.nn._module import Module

Record = dict[str, Any]
"""What is known of the results of a node, by the names of PyTorch."""
Results = dict[str, dict[str, dict[str, list[Record]]]]
"""By layer, kind of results and model: records, each with "values" and the place of the argument."""


class OutputLogger(Module):
    """Records the results of a node, with what is known of it."""

    def __init__(
        self,
        ref_node_name: str,
        prev_node_name: str,
        model_name: str,
        ref_name: str,
        prev_node_target_type: str,
        ref_node_target_type: str,
        results_type: str,
        index_within_arg: int,
        index_of_arg: int,
        fqn: str | None,
        qconfig_str: str | None = "",
    ) -> None:
        super().__init__()
        self.stats: list[PyTree] = []
        self.stats_rnn: list[PyTree] = []
        self.ref_node_name, self.prev_node_name = ref_node_name, prev_node_name
        self.model_name, self.ref_name = model_name, ref_name
        self.prev_node_target_type, self.ref_node_target_type = prev_node_target_type, ref_node_target_type
        self.results_type = results_type
        self.index_within_arg, self.index_of_arg = index_within_arg, index_of_arg
        self.fqn, self.qconfig_str = fqn, qconfig_str
        self.enabled = self.save_activations = True

    def forward(self, x: PyTree, *more: Arg) -> Result:
        """Record a tensor, or the results of a recurrent layer, and return it."""
        del more
        if self.enabled and self.save_activations:
            if isinstance(x, Tensor):
                self.stats.append(x.detach())
            elif is_tuple(x) and len(x) == 2 and len(x[1]) == 2:
                self.stats_rnn.append((x[0].detach(), tuple([state.detach() for state in x[1]])))
        return x

    def __repr__(self) -> str:
        own = {key: value for key, value in vars(self).items() if key != "training" and not key.startswith("_")}
        return f"{type(self).__name__}({own})"


class OutputComparisonLogger(OutputLogger):
    """Records how far results depart from a reference, by `comparison_fn`: their SQNR, unless it is set."""

    def __init__(self, *args: Arg, **kwargs: Arg) -> None:
        super().__init__(*args, **kwargs)
        self.comparison_fn: AnyCallable = compute_sqnr
        self.comparison_fn_name = "sqnr"
        self.comparisons: list[PyTree] = []

    def forward(self, x: PyTree, *more: Arg) -> Result:
        """Record `comparison_fn(x, x_ref)` and, if asked to, `x`; return `x`."""
        if self.enabled:
            if self.save_activations:
                self.stats.append(x.detach())
            self.comparisons.append(self.comparison_fn(x, *more))
        return x


def extend_logger_results_with_comparison(
    results: Results,
    model_name_1: str,
    model_name_2: str,
    comparison_fn: AnyCallable,
    comparison_name: str,
) -> None:
    """Add to each record of the second model how far it departs from the first one's, in place.

    `results` has, by layer, kind of results and model, records with "values", "index_within_arg" and "index_of_arg".
    `AssertionError`, before anything is added, where the first model lacks a record.
    """
    groups = [models for kinds in results.values() for models in kinds.values()]
    pairs = [pair for models in groups for pair in _pairs(models, model_name_1, model_name_2)]
    for reference, record in pairs:
        values = zip(reference["values"], record["values"], strict=False)
        record[comparison_name] = [comparison_fn(a, b) for a, b in values]


def _pairs(models: dict[str, list[Record]], first: str, second: str) -> list[tuple[Record, Record]]:
    for name in (first, second):
        if name not in models:
            raise PreconditionError(f"{name} not found in results, which have {', '.join(models)}")
    by_place = {_place(record): record for record in reversed(models[first])}
    for record in models[second]:
        if _place(record) not in by_place:
            raise PreconditionError(f"{first} has no record for argument {_place(record)} of {second}")
    return [(by_place[_place(record)], record) for record in models[second]]


def _place(record: Record) -> tuple[int, int]:
    return record["index_within_arg"], record["index_of_arg"]


def loggers_set_enabled(model: Module, enabled: bool) -> None:
    """Let the loggers of a model record, or not."""
    for module in model.modules():
        if isinstance(module, OutputLogger):
            module.enabled = enabled


def loggers_set_save_activations(model: Module, save_activations: bool) -> None:
    """Let the loggers of a model keep tensors, or not."""
    for module in model.modules():
        if isinstance(module, OutputLogger):
            module.save_activations = save_activations


# --- two graphs ---------------------------------------------------------------------------------------------------


class NSTracer(QuantizationTracer):
    """The tracer for models that are no graph modules yet."""


def _traced(model: Module) -> GraphModule:
    return model if isinstance(model, GraphModule) else GraphModule(model, NSTracer((), ()).trace(model))


def _require_defaults(**options: Arg) -> None:
    for name, value in options.items():
        if value is not None:
            raise UnsupportedError(f"{name}: operators are matched by the table of graph mode; leave it out")


def _by_layer(results: Results, name: str) -> Results:
    """Results by the names of the nodes of one of the models that have the results."""
    renamed: Results = {}
    for ref_name, kinds in results.items():
        records = [record for models in kinds.values() for record in models.get(name, [])]
        renamed[records[-1]["ref_node_name"] if records else ref_name] = kinds
    return renamed


def extract_weights(
    model_name_a: str,
    model_a: Module,
    model_name_b: str,
    model_b: Module,
    base_name_to_sets_of_related_ops: object = None,
    unmatchable_types_map: object = None,
    op_to_type_to_weight_extraction_fn: object = None,
) -> Results:
    """The weights of both models, by the name of the node in the second one.

    Results have the form `results[layer]["weight"][model][0]["values"]`. `GraphMatchingException` for models that do
    not compute the same.
    """
    _require_defaults(
        base_name_to_sets_of_related_ops=base_name_to_sets_of_related_ops,
        unmatchable_types_map=unmatchable_types_map,
        op_to_type_to_weight_extraction_fn=op_to_type_to_weight_extraction_fn,
    )
    a, b = _traced(model_a), _traced(model_b)
    results: Results = {}
    for ref_name, (part_a, part_b) in matching_subgraphs(a, b).items():
        models: dict[str, list[Record]] = {}
        for name, model, part in ((model_name_a, a, part_a), (model_name_b, b, part_b)):
            values = weights_of(part, model)
            if not values:
                break
            kind = graph_passes.type_text(part.start, model)
            models[name] = [
                {
                    "type": "weight",
                    "values": values,
                    "prev_node_name": part.start.name,
                    "prev_node_target_type": kind,
                    "ref_node_name": part.start.name,
                    "ref_node_target_type": kind,
                    "index_within_arg": 0,
                    "index_of_arg": 0,
                    "fqn": graph_passes.fqn_of(part.start),
                }
            ]
        # A layer whose weights are known on one side only has nothing to be compared with.
        if len(models) == 2:
            results[ref_name] = {"weight": models}
    return _by_layer(results, model_name_b)


def add_loggers(
    name_a: str,
    model_a: Module,
    name_b: str,
    model_b: Module,
    logger_cls: AnyCallable,
    should_log_inputs: bool = False,
    base_name_to_sets_of_related_ops: object = None,
    unmatchable_types_map: object = None,
) -> tuple[GraphModule, GraphModule]:
    """Both models with loggers of results, and of inputs if asked to, where they compute the same.

    Run both on the same data, then `extract_logger_info`. The models given stay as they are.
    """
    _require_defaults(
        base_name_to_sets_of_related_ops=base_name_to_sets_of_related_ops, unmatchable_types_map=unmatchable_types_map
    )
    a, b = _traced(model_a), _traced(model_b)
    pairs = matching_subgraphs(a, b)
    parts = [{ref_name: pair[side] for ref_name, pair in pairs.items()} for side in (0, 1)]
    return (
        graph_passes.add_loggers(a, name_a, parts[0], logger_cls, should_log_inputs),
        graph_passes.add_loggers(b, name_b, parts[1], logger_cls, should_log_inputs),
    )


def _collect(model: Module, logger_cls: Arg, results: Results) -> None:
    for _, logger in model.named_modules():
        if not isinstance(logger, OutputLogger) or not isinstance(logger, logger_cls):
            continue
        models = results.setdefault(logger.ref_name, {}).setdefault(logger.results_type, {})
        record = {
            "type": logger.results_type,
            "values": logger.stats_rnn or logger.stats,
            "ref_node_name": logger.ref_node_name,
            "ref_node_target_type": logger.ref_node_target_type,
            "prev_node_name": logger.prev_node_name,
            "prev_node_target_type": logger.prev_node_target_type,
            "index_within_arg": logger.index_within_arg,
            "index_of_arg": logger.index_of_arg,
            "fqn": logger.fqn,
            "qconfig_str": logger.qconfig_str,
            "comparisons": getattr(logger, "comparisons", []),
            "comparison_fn_name": getattr(logger, "comparison_fn_name", ""),
        }
        models.setdefault(logger.model_name, []).append(record)
        models[logger.model_name].sort(key=_place)


def extract_logger_info(
    model_a: Module, model_b: Module, logger_cls: AnyCallable, model_name_to_use_for_layer_names: str
) -> Results:
    """What the loggers of both models have recorded, by the name of the node in one of the models.

    Results have the form `results[layer]["node_output"][model][0]["values"]`: a list with an entry for each run.
    """
    results: Results = {}
    for model in (model_a, model_b):
        _collect(model, logger_cls, results)
    return _by_layer(results, model_name_to_use_for_layer_names)


def add_shadow_loggers(
    name_a: str,
    model_a: Module,
    name_b: str,
    model_b: Module,
    logger_cls: AnyCallable,
    should_log_inputs: bool = False,
    base_name_to_sets_of_related_ops: object = None,
    node_type_to_io_type_map: object = None,
    unmatchable_types_map: object = None,
) -> GraphModule:
    """The second model in which operations of the first one run on the same inputs, as far as they have one input.

    This shows the error of each operation by itself. Run it, then `extract_shadow_logger_info`.
    """
    _require_defaults(
        base_name_to_sets_of_related_ops=base_name_to_sets_of_related_ops,
        node_type_to_io_type_map=node_type_to_io_type_map,
        unmatchable_types_map=unmatchable_types_map,
    )
    a, b = _traced(model_a), _traced(model_b)
    pairs = matching_subgraphs(a, b)
    return graph_passes.add_shadows((name_a, name_b), a, b, pairs, logger_cls, should_log_inputs)


def extract_shadow_logger_info(
    model_a_shadows_b: Module, logger_cls: AnyCallable, model_name_to_use_for_layer_names: str
) -> Results:
    """What the loggers of a model of `add_shadow_loggers` have recorded, in the form of `extract_logger_info`."""
    results: Results = {}
    _collect(model_a_shadows_b, logger_cls, results)
    return _by_layer(results, model_name_to_use_for_layer_names)


# --- several shadows ----------------------------------------------------------------------------------------------


def prepare_n_shadows_model(
    model: Module,
    example_inputs: Args,
    qconfig_multi_mapping: QConfigMultiMapping,
    backend_config: BackendConfig | None,
    custom_prepare_fn: object = None,
    custom_prepare_kwargs: object = None,
    custom_tracer: Tracer | None = None,
) -> GraphModule:
    """A model with the same results, in which each operation has a shadow for each of its `QConfig`s, on its inputs.

    Run it on some data, `convert_n_shadows_model`, let the loggers record by `loggers_set_enabled`, run it again, and
    `extract_results_n_shadows_model`: one pass tells how far each `QConfig` departs in each operation.
    `example_inputs` is not needed here.
    """
    del example_inputs, custom_prepare_kwargs
    require_native(backend_config)
    _require_defaults_of("prepare_n_shadows_model", custom_prepare_fn=custom_prepare_fn)
    tracer = custom_tracer or NSTracer((), ())
    result = GraphModule(model, tracer.trace(model))
    scopes: dict[str, Scope] = dict(tracer.node_name_to_scope)
    mappings = qconfig_multi_mapping.qconfig_mappings_list
    n_shadows.add_n_shadows(result, scopes, mappings, OutputLogger, OutputComparisonLogger)
    return result.train(model.training)


def convert_n_shadows_model(
    model: GraphModule, custom_convert_fn: object = None, custom_convert_kwargs: object = None
) -> GraphModule:
    """Convert the shadows of a model of `prepare_n_shadows_model`, in place, and return it."""
    del custom_convert_kwargs
    _require_defaults_of("convert_n_shadows_model", custom_convert_fn=custom_convert_fn)
    n_shadows.convert_n_shadows(model)
    return model


def _require_defaults_of(function: str, **options: Arg) -> None:
    for name, value in options.items():
        if value is not None:
            raise UnsupportedError(f"{function}({name}=...): shadows are those of quantize_fx; leave it out")


def extract_results_n_shadows_model(model: Module) -> Results:
    """What the loggers of a model of `prepare_n_shadows_model` have recorded.

    `results["model"]["node_output"]["subgraph_2_0"]` is of the third operation itself, and `"subgraph_2_1"` of its
    first shadow, with `"comparisons"`: the SQNR in each run.
    """
    results: Results = {}
    _collect(model, OutputLogger, results)
    return results


def print_comparisons_n_shadows_model(results: Results) -> None:
    """Print the mean SQNR of each shadow, by operation, from `extract_results_n_shadows_model`."""
    print(n_shadows.summary(results.get("model", {}).get("node_output", {})))
