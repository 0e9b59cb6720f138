"""Observers for the graph of a model: at the inputs and results of what is going to be quantized."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from weft._base.guards import is_list_or_tuple
from weft._base.layout import per_tensor_affine
from weft._base.types import AnyCallable, Arg, Kwargs
from weft.ao._observing.observer import ReuseInputObserver
from weft.ao._observing.qconfig import are_same
from weft.ao._observing.utils import AnyQConfig, is_per_channel
from weft.ao.nn.qat.dynamic.modules.linear import Linear as DynamicQatLinear
from weft.ao.quantization.fx.custom_config import PrepareCustomConfig, StandaloneModuleConfigEntry
from weft.ao.quantization.fx.operations import (
    CUSTOM,
    QuantizationMode,
    QuantizedOperation,
    Results,
    has_tensor,
    is_tensor,
    mode_of,
    operation_of,
    relu_after,
    users_forms,
)
from weft.ao.quantization.fx.qconfigs import Scope, qconfigs_of
from weft.ao.quantization.qconfig_mapping import QConfigMapping
from weft.ao.quantization.quantization_mappings import get_embedding_qat_module_mappings
from weft.errors import PreconditionError, UnsupportedError
from weft.fx._paths import assign_at
from weft.fx.graph import Graph
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node, map_arg
from weft.nn._linear import Linear
from weft.nn._module import Module
from weft.nn.utils.parametrize import type_before_parametrizations

KEY = "quantization"
"""Where the `meta` of a prepared model has its `InsertionPlan`."""

PREFIX = "activation_post_process_"
"""How the names of observers begin."""

PreparePart = Callable[[Module, StandaloneModuleConfigEntry, Any], GraphModule]
"""Prepares a standalone module, whose own `QConfig` is the last argument."""


@dataclass
class InsertionPlan:
    """What `convert_fx` needs to know of a prepared model.

    modes      how nodes are going to be quantized, by name
    qconfigs   of these nodes
    scopes     the path of the module in which each node was made
    inputs     positions of inputs that will be quantized tensors, and `outputs` of results
    calls      the names of all calls, in order: a graph that comes from a file may have others
    """

    modes: dict[str, QuantizationMode] = field(default_factory=dict[str, QuantizationMode])
    qconfigs: dict[str, AnyQConfig] = field(default_factory=dict[str, AnyQConfig])
    scopes: dict[str, str] = field(default_factory=dict[str, str])
    inputs: list[int] = field(default_factory=list[int])
    outputs: list[int] = field(default_factory=list[int])
    calls: list[str] = field(default_factory=list[str])

    def of(self, graph: Graph) -> InsertionPlan:
        """The plan by the names that the graph of the prepared model has now. `AssertionError` if it has changed."""
        calls = calls_of(graph)
        if len(calls) != len(self.calls):
            raise PreconditionError(
                f"the graph has changed since prepare: {len(self.calls)} calls have become {len(calls)}; prepare anew"
            )
        now = dict(zip(self.calls, calls, strict=True))

        def renamed(part: Mapping[str, object]) -> Kwargs:
            return {now.get(name, name): x for name, x in part.items()}

        return InsertionPlan(
            renamed(self.modes), renamed(self.qconfigs), renamed(self.scopes), self.inputs, self.outputs, calls
        )


def calls_of(graph: Graph) -> list[str]:
    """The names of the nodes that call something, in order."""
    return [node.name for node in graph.nodes if node.op in ("call_module", "call_function", "call_method")]


def plan_of_part(node: Node, model: GraphModule) -> InsertionPlan | None:
    """The plan of the standalone module that a node of a prepared model calls; None for other nodes."""
    module = model.get_submodule(str(node.target)) if node.op == "call_module" else None
    return module.meta.get(KEY) if isinstance(module, GraphModule) else None


def is_observer(node: object) -> bool:
    """Whether a node calls an observer that `prepare_fx` has added."""
    return isinstance(node, Node) and node.op == "call_module" and str(node.target).startswith(PREFIX)


def output_observer(node: Node) -> Node | None:
    """The observer of a node's results, or None."""
    return next(filter(is_observer, node.users), None)


def _observers_before(node: Node) -> list[Node]:
    """The observers whose grid the result of a node has: of its first argument, or of all tensors in it.

    Where these have none, it is that of the first argument of what has computed them, and so on, as in PyTorch: parts
    (`x.chunk(2)[0]`) are on the grid of the whole.
    """
    first = next((arg for arg in (*node.args, *node.kwargs.values()) if is_list_or_tuple(arg) or is_tensor(arg)), ())
    return [observer for arg in (first if is_list_or_tuple(first) else (first,)) if (observer := _observer_of(arg))]


def _observer_of(value: object) -> Node | None:
    while isinstance(value, Node) and not is_observer(value):
        value = next(filter(is_tensor, value.args), None) if value.op != "placeholder" else None
    return value if isinstance(value, Node) else None


def _before_relu(node: Node, model: GraphModule) -> Node | None:
    """What is computed together with a ReLU; None for other nodes, and for a ReLU that is computed by itself."""
    return next((arg for arg in node.all_input_nodes if relu_after(arg, model) is node), None)


class _Preparation:
    def __init__(self, model: GraphModule, plan: InsertionPlan, custom: PrepareCustomConfig) -> None:
        self.model, self.plan = model, plan
        self.users = {kind for kinds in custom.float_to_observed_mapping.values() for kind in kinds}
        self.observers: dict[Node, list[tuple[Node, AnyCallable]]] = {}
        self.quantized: set[Node] = set()
        self.count = 0

    def _observe(self, value: Node, make: AnyCallable, module: Module | None = None) -> Node:
        """A node after `value` with an observer, a new one or `module`."""
        device = next((x.device for x in self.model.parameters()), None)
        observer = make() if module is None else module
        if module is None:  # for errors of the observer
            observer.observes = f"{'the input' if value.op == 'placeholder' else 'the result of'} {value.name!r}"
        path = f"{PREFIX}{self.count}"
        self.count += 1
        self.model.add_submodule(path, observer.to(device) if device is not None else observer)
        with self.model.graph.inserting_after(value):
            node = self.model.graph.call_module(path, (value,))
        self.observers.setdefault(value, []).append((node, make))
        return node

    def _observed_input(self, value: Node, make: AnyCallable) -> Node:
        """A value as an operation sees it: by an observer, unless it has one for such a grid already."""
        if is_observer(value) or value in self.quantized or not has_tensor(value):
            return value
        for node, other_make in self.observers.get(value, ()):
            if are_same(other_make, make):
                return node
        return self._observe(value, make)

    def _replace_inputs(self, node: Node, own: QuantizedOperation, mode: QuantizationMode, qconfig: AnyQConfig) -> None:
        def observed(value: Node) -> Node:
            return self._observed_input(value, qconfig.activation)

        if mode is QuantizationMode.DYNAMIC and own.weight is None:  # states of recurrent layers stay floats
            node.args = (map_arg(node.args[0], observed), *node.args[1:])
            return
        names = ("input", "weight", "bias") if own.weight is not None else ("input", "running_mean", "running_var")

        def one(at: object, arg: Arg) -> Arg:
            position = names.index(at) if at in names else at
            if own.weight is not None and position == own.weight:
                return map_arg(arg, lambda value: self._observed_input(value, qconfig.weight))
            is_float = position in own.floats or at in ("weight", "bias", "running_mean", "running_var")
            return arg if is_float else map_arg(arg, observed)

        node.args = tuple([one(at, arg) for at, arg in enumerate(node.args)])
        node.kwargs = {name: one(name, arg) for name, arg in node.kwargs.items()}

    def _add_output_observer(self, node: Node, own: QuantizedOperation, qconfig: AnyQConfig) -> None:
        shared = _observers_before(node) if own.results is Results.SHARED else []
        module = self.model.get_submodule(str(shared[0].target)) if shared else None
        for other in shared:
            setattr(self.model, str(other.target), module)
        users = list(node.users)
        observer = self._observe(node, qconfig.activation, module)
        node.replace_all_uses_with(observer, delete_user_cb=lambda user: user in users)

    def visit(self, node: Node) -> None:
        """Add the observers of one node."""
        qconfig: AnyQConfig = self.plan.qconfigs.get(node.name)
        if part := plan_of_part(node, self.model):
            self._visit_part(node, part, qconfig)
            return
        own = operation_of(node, self.model, self.users)
        mode = own and mode_of(qconfig, own)
        if own is None or mode is None or self._is_after_refused(node):
            return
        self._require_one_grid(node, mode, qconfig)
        if own.results is not Results.NONE:
            is_reused = isinstance(qconfig.activation(), ReuseInputObserver)
            # The grid to be reused does not exist.
            if is_reused and not _observers_before(node):
                return
            before = _before_relu(node, self.model)
            first = operation_of(before, self.model) if before and before.name in self.plan.modes else None
            has_inputs = mode is QuantizationMode.STATIC or (mode is QuantizationMode.DYNAMIC and own is not CUSTOM)
            if has_inputs and first is None and not is_reused:
                self._replace_inputs(node, own, mode, qconfig)
            # Otherwise it is fused with the ReLU, whose result is what needs a grid.
            if mode is QuantizationMode.STATIC and not self._is_before_relu(node):
                self._add_output_observer(node, first or own, qconfig)
        self.plan.modes[node.name] = mode

    def _visit_part(self, node: Node, part: InsertionPlan, qconfig: AnyQConfig) -> None:
        """Observe the inputs that a standalone module takes as quantized tensors; it observes its results itself."""
        if qconfig is not None:
            node.args = tuple(
                [
                    map_arg(arg, lambda value: self._observed_input(value, qconfig.activation))
                    if at in part.inputs
                    else arg
                    for at, arg in enumerate(node.args)
                ]
            )
        if part.outputs:
            self.quantized.add(node)

    def _is_after_refused(self, node: Node) -> bool:
        """Whether a ReLU follows something that its `QConfig` leaves on floats: then it stays there as well."""
        before = _before_relu(node, self.model)
        return (
            before is not None
            and self.plan.qconfigs.get(before.name) is not None
            and before.name not in self.plan.modes
        )

    @staticmethod
    def _require_one_grid(node: Node, mode: QuantizationMode, qconfig: AnyQConfig) -> None:
        observer = qconfig.activation()
        if mode is QuantizationMode.STATIC and is_per_channel(getattr(observer, "qscheme", per_tensor_affine)):
            raise UnsupportedError(
                f"the QConfig of {node.name} has a grid for each channel of activations, by "
                f"{type(observer).__name__}, but only weights have such grids: give it an observer such "
                "as HistogramObserver or MinMaxObserver for activations"
            )

    def _is_before_relu(self, node: Node) -> bool:
        """Whether the result is observed after the ReLU that follows."""
        relu = relu_after(node, self.model)
        if relu is None:
            return False
        own = operation_of(relu, self.model)
        return own is not None and mode_of(self.plan.qconfigs.get(relu.name), own) is QuantizationMode.STATIC


def _swap(
    model: GraphModule, plan: InsertionPlan, nodes: list[Node], custom: PrepareCustomConfig, *, is_qat: bool
) -> None:
    """Replace modules: by those for training with rounding, and users' modules by their observed forms."""
    kinds = get_embedding_qat_module_mappings() if is_qat else {}
    for node in nodes:
        qconfig = plan.qconfigs.get(node.name)
        if node.op != "call_module" or qconfig is None:
            continue
        path = str(node.target)
        module = model.get_submodule(path)
        kind = type_before_parametrizations(module)
        observed = users_forms(custom.float_to_observed_mapping, plan.modes.get(node.name))
        if kind in observed:
            module.qconfig = qconfig
            assign_at(model, path, observed[kind].from_float(module))
        if kind in kinds and hasattr(qconfig.weight(), "fake_quant_enabled"):
            module.qconfig = qconfig
            is_dynamic = kind is Linear and getattr(qconfig.activation(), "is_dynamic", False)
            assign_at(model, path, (DynamicQatLinear if is_dynamic else kinds[kind]).from_float(module))


def _prepare_standalone(
    node: Node, model: GraphModule, custom: PrepareCustomConfig, prepare_part: PreparePart, qconfig: AnyQConfig
) -> None:
    """Prepare the module that a node calls by itself, if it is a standalone one."""
    module: Module | None = model.get_submodule(str(node.target)) if node.op == "call_module" else None
    entry = custom.standalone_module_classes.get(type(module)) if module is not None else None
    entry = custom.standalone_module_names.get(str(node.target), entry)
    if module is not None and entry is not None:
        assign_at(model, str(node.target), prepare_part(module, entry, qconfig))


def prepare(
    model: GraphModule,
    mapping: QConfigMapping,
    scopes: dict[str, Scope],
    custom: PrepareCustomConfig,
    prepare_part: PreparePart,
    *,
    is_qat: bool,
) -> None:
    """Add observers to a traced and fused model, in place, and note what is going to be quantized."""
    nodes = list(model.graph.nodes)
    inputs, outputs = custom.input_quantized_indexes, custom.output_quantized_indexes
    qconfigs = qconfigs_of(nodes, model, mapping, scopes)
    paths = {name: path for name, (path, _) in scopes.items()}
    plan = InsertionPlan(qconfigs=qconfigs, scopes=paths, inputs=inputs, outputs=outputs)
    for node in nodes:
        _prepare_standalone(node, model, custom, prepare_part, qconfigs.get(node.name))
    preparation = _Preparation(model, plan, custom)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    preparation.quantized = {placeholders[at] for at in inputs}
    for node in nodes:
        preparation.visit(node)
    _swap(model, plan, nodes, custom, is_qat=is_qat)
    plan.calls = calls_of(model.graph)
    model.meta[KEY] = plan
    model.recompile()
