"""The graph of a quantized model, from that of a prepared one.

Each value is available as floats, as a quantized tensor, or as both: nodes that change one into the other are added
where a user needs them. Layers become quantized ones; functions with weights take quantized tensors; what only moves
or compares elements stays as it is and gets quantized tensors. All other operations compute with the numbers, as
those of `ao.nn.quantized` do, and their results are put on the grid that was observed.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from weft import quantize_per_tensor
from weft._base.dtype import float32, int64, qint8
from weft._base.guards import is_list_or_tuple
from weft._base.types import Arg, AttributeValue
from weft._tensor.convert import tensor
from weft._tensor.tensor import Tensor
from weft.ao._observing.qconfig import qconfig_equals
from weft.ao.nn.qat.dynamic.modules.linear import Linear as DynamicQatLinear
from weft.ao.nn.quantized import functional as qF
from weft.ao.nn.quantized._arithmetic import quantized_weight
from weft.ao.nn.quantized._module import WeightedQuantizedModule, grid_of
from weft.ao.nn.quantized.dynamic.modules.linear import Linear as DynamicLinear
from weft.ao.nn.quantized.modules.activation import Softmax as QuantizedSoftmax
from weft.ao.nn.quantized.modules.functional_modules import add_scalar, mul_scalar
from weft.ao.quantization.fx.custom_config import ConvertCustomConfig
from weft.ao.quantization.fx.names import grid_names, numbered
from weft.ao.quantization.fx.operations import (
    CUSTOM,
    QuantizationMode,
    QuantizedOperation,
    Results,
    is_tensor,
    mode_of,
    name_of,
    operation_of,
    relu_after,
    scalar_form,
    type_of_weights,
    users_forms,
)
from weft.ao.quantization.fx.prepare import KEY, InsertionPlan, is_observer, output_observer, plan_of_part
from weft.ao.quantization.fx.qconfigs import qconfigs_of
from weft.ao.quantization.qconfig_mapping import QConfigMapping
from weft.ao.quantization.quantization_mappings import (
    get_default_dynamic_quant_module_mappings,
    get_embedding_qat_module_mappings,
    get_embedding_static_quant_module_mappings,
)
from weft.errors import PreconditionError
from weft.fx._paths import attribute_at
from weft.fx.graph import Graph, codegen_of
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node, map_arg
from weft.nn._activation import Softmax
from weft.nn._linear import Linear
from weft.nn._lookup import AnyModule
from weft.nn._module import Module
from weft.nn._parameter import Parameter
from weft.nn.utils.parametrize import type_before_parametrizations

if TYPE_CHECKING:
    from weft.fx.node import Argument

_STATIC = {**get_embedding_static_quant_module_mappings(), Softmax: QuantizedSoftmax}
_DYNAMIC = get_default_dynamic_quant_module_mappings()
_QAT = {*get_embedding_qat_module_mappings().values(), DynamicQatLinear}
_SCALAR = {"add": add_scalar, "mul": mul_scalar}


@dataclass
class _Value:
    """A value in the new graph.

    floats     the node with its numbers, or None as long as nobody needs it
    quantized  the node with the quantized tensor, likewise
    observer   the node of the observer that has the grid, if the value has one
    source     the node whose numbers are put on that grid
    """

    floats: Node | None = None
    quantized: Node | None = None
    observer: Node | None = None
    source: Node | None = None

    @property
    def has_grid(self) -> bool:
        return self.quantized is not None or self.observer is not None


class _Conversion:
    """The state of one conversion: the new graph, what its nodes refer to, and the values of nodes so far."""

    def __init__(self, model: GraphModule, plan: InsertionPlan, custom: ConvertCustomConfig) -> None:
        self.model, self.plan = model, plan
        self.grids = grid_names(model, plan)
        self.custom = custom
        self.users = {kind for kinds in custom.observed_to_quantized_mapping.values() for kind in kinds}
        self.graph = Graph()
        self.graph.set_codegen(copy.deepcopy(codegen_of(model.graph)))
        self.attributes: dict[str, AttributeValue] = {}
        self.values: dict[Node, _Value] = {}
        self.weights: dict[Node, str] = {}
        self.steps = {
            "placeholder": self._placeholder,
            "get_attr": self._get_attr,
            "call_module": self._call_module,
            "call_function": self._call,
            "call_method": self._call,
            "output": self._output,
        }

    def run(self) -> GraphModule:
        """Convert all nodes."""
        for node in self.model.graph.nodes:
            self.steps[node.op](node)
        self.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output") or _writes(node))
        result = GraphModule(self.attributes, self.graph, type(self.model).__name__)
        return result.train(self.model.training)

    # --- values -----------------------------------------------------------------------------------------------

    def _observer(self, node: Node) -> Module:
        return self.model.get_submodule(str(node.target))

    def _new_name(self, prefix: str) -> str:
        names = {*self.attributes, *(name for pair in self.grids.values() for name in pair)}
        return numbered(prefix, names)

    def _attribute(self, name: str, value: object) -> Node:
        self.attributes[name] = value
        return self.graph.get_attr(name)

    def _grid(self, observer: Node) -> tuple[Node, Node]:
        """Nodes that read the scale and the zero point of an observer."""
        scale_name, zero_point_name = self.grids[observer]
        scale, zero_point = grid_of(self._observer(observer))
        return (
            self._attribute(scale_name, tensor(scale, dtype=float32)),
            self._attribute(zero_point_name, tensor(zero_point, dtype=int64)),
        )

    def _floats(self, node: Node) -> Node:
        """The numbers of a value."""
        value = self.values[node]
        if value.floats is None:
            value.floats = self.graph.call_method("dequantize", (self._quantized(node),))
        return value.floats

    def _quantized(self, node: Node) -> Node:
        """A value as a quantized tensor."""
        value = self.values[node]
        if value.quantized is None:
            if value.observer is None:
                raise PreconditionError(f"convert_fx: no observer has seen {node.name}, which is to be quantized")
            scale, zero_point = self._grid(value.observer)
            dtype = self._observer(value.observer).dtype
            value.quantized = self.graph.call_function(quantize_per_tensor, (value.source, scale, zero_point, dtype))
        return value.quantized

    def _either(self, node: Node) -> Node:
        """A value in the form that it has."""
        value = self.values[node]
        return value.quantized or value.floats or self._floats(node)

    # --- nodes ------------------------------------------------------------------------------------------------

    def _placeholder(self, node: Node) -> None:
        new = self.graph.node_copy(node)
        at = [other for other in self.model.graph.nodes if other.op == "placeholder"].index(node)
        self.values[node] = _Value(quantized=new) if at in self.plan.inputs else _Value(floats=new)

    def _get_attr(self, node: Node) -> None:
        self.attributes[str(node.target)] = attribute_at(self.model, str(node.target))
        self.values[node] = _Value(floats=self.graph.node_copy(node))

    def _output(self, node: Node) -> None:
        results = node.args[0] if is_list_or_tuple(node.args[0]) else (node.args[0],)
        kept: set[Node] = set()
        for at in self.plan.outputs:
            map_arg(results[at], kept.add)

        def result(x: Node) -> Node:
            return self._quantized(x) if x in kept and self.values[x].has_grid else self._floats(x)

        self.graph.node_copy(node, result)

    def _on_floats(self, node: Node) -> None:
        """Copy a node that computes with numbers; its results are put on a grid by whoever needs that."""
        if node.op == "call_module":
            module = self.model.get_submodule(str(node.target))
            is_rounding = type_before_parametrizations(module) in _QAT
            self.attributes[str(node.target)] = module.to_float() if is_rounding else module
        self.values[node] = _Value(floats=self.graph.node_copy(node, self._floats))

    def _on_integers(self, node: Node) -> None:
        """Copy a node that takes quantized tensors, and returns one on their grid or on a fixed one."""
        if node.op == "call_module":
            self.attributes[str(node.target)] = self.model.get_submodule(str(node.target))
        new = self.graph.node_copy(node, lambda x: self._quantized(x) if self.values[x].has_grid else self._floats(x))
        self.values[node] = _Value(quantized=new)

    def _call_module(self, node: Node) -> None:
        if not is_observer(node):
            self._call(node)
            return
        source = node.args[0]
        if not isinstance(source, Node):
            raise PreconditionError(f"convert_fx: the observer {node.name} has no input; prepare the model anew")
        value = self.values[source]
        is_needed = any(self.plan.qconfigs.get(x.name) is not None for x in (source, *node.users))
        if value.has_grid or node not in self.grids or not is_needed:
            self.values[node] = value
        else:
            self.values[node] = _Value(observer=node, source=value.floats)

    def _call(self, node: Node) -> None:
        if part := plan_of_part(node, self.model):
            self._part(node, part)
            return
        mode = self.plan.modes.get(node.name) or self._mode_of_users(node)
        own = operation_of(node, self.model, self.users) if mode else None
        if own is None:
            self._on_floats(node)
        elif own.results is Results.NONE:
            self.values[node] = _Value(floats=self.graph.node_copy(node, self._either))
        elif node.op == "call_module" and not own.on_integers:
            self._module(node, mode)
        elif own.weight is not None:
            self._weighted(node, own, mode)
        elif not any(self.values[x].has_grid for x in node.all_input_nodes):
            self._on_floats(node)
        elif own.on_integers:
            self._on_integers(node)
        elif form := scalar_form(node):
            first, second = sorted(node.args, key=lambda arg: not is_tensor(arg))
            scalar = map_arg(second, self._floats)
            new = self.graph.call_function(_SCALAR[form], (self._quantized(first), scalar))
            self.values[node] = _Value(quantized=new)
        else:
            self._on_floats(node)

    def _part(self, node: Node, part: InsertionPlan) -> None:
        """A call of a standalone module."""
        path = str(node.target)
        module = self.model.get_submodule(path)
        if path not in self.attributes:
            self.attributes[path] = convert(module, self.custom)
        quantized = {arg for at, arg in enumerate(node.args) if at in part.inputs}
        new = self.graph.node_copy(node, lambda x: self._quantized(x) if x in quantized else self._floats(x))
        self.values[node] = _Value(quantized=new) if part.outputs else _Value(floats=new)

    def _mode_of_users(self, node: Node) -> QuantizationMode | None:
        """How a user's module is quantized that needs no observers, so that `prepare_fx` knows nothing of it."""
        own = operation_of(node, self.model, self.users) if node.op == "call_module" else None
        mode = mode_of(self.plan.qconfigs.get(node.name), CUSTOM) if own is CUSTOM else None
        return None if mode is QuantizationMode.STATIC else mode

    def _module(self, node: Node, mode: QuantizationMode | None) -> None:
        """A call of a layer that becomes a quantized one."""
        path = str(node.target)
        module = copy.copy(self.model.get_submodule(path))
        kind = type_before_parametrizations(module)
        mappings = _DYNAMIC if mode is QuantizationMode.DYNAMIC else _STATIC
        qconfig = self.plan.qconfigs[node.name]
        has_weight = issubclass(mappings.get(kind, Module), WeightedQuantizedModule)
        is_refused = mode is QuantizationMode.STATIC and has_weight and type_of_weights(qconfig) is not qint8
        users = users_forms(self.custom.observed_to_quantized_mapping, mode).get(kind)
        if users is None and (kind not in mappings or is_refused):
            self._on_floats(node)
            return
        observer = output_observer(relu_after(node, self.model) or node)
        if mode is QuantizationMode.STATIC:
            if observer is None:
                raise PreconditionError(f"convert_fx: {path} has no observer for its results; prepare the model anew")
            module = copy.deepcopy(module)
            module.activation_post_process = self._observer(observer)
        module.qconfig = qconfig
        form: AnyModule = users or mappings[kind]
        result: Module = form.from_observed(module) if users else form.from_float(module)
        if path in self.attributes:  # called before, with results on another grid
            path = self._new_name(path)
        self.attributes[path] = result
        new = self.graph.node_copy(node, self._quantized if mode is QuantizationMode.STATIC else self._floats)
        new.target = path
        self.values[node] = _Value(quantized=new) if mode is QuantizationMode.STATIC else _Value(floats=new)

    def _weighted(self, node: Node, own: QuantizedOperation, mode: QuantizationMode | None) -> None:
        """A function with a weight: of an affine layer, or of a convolution."""
        weight, bias = self._argument(node, own.weight or 1, "weight"), self._argument(node, 2, "bias")
        source = weight.args[0] if is_observer(weight) else None
        observer = output_observer(relu_after(node, self.model) or node)
        # A weight that is computed can have no fixed grid.
        if not isinstance(source, Node) or source.op != "get_attr":
            self._on_floats(node)
            return
        numbers: Tensor = attribute_at(self.model, str(source.target))
        if mode is QuantizationMode.DYNAMIC:
            self._dynamic_linear(node, numbers, bias)
            return
        if observer is None:
            raise PreconditionError(f"convert_fx: {node.name} has no observer for its results; prepare the model anew")
        scale, zero_point = self._grid(observer)
        rest = {name: arg for name, arg in node.kwargs.items() if name not in ("input", "weight", "bias")}
        names = ("stride", "padding", "dilation", "groups")
        rest.update(zip(names, node.args[3:], strict=False))
        function = getattr(qF, name_of(node).rpartition(".")[2])
        new = self.graph.create_node(
            "call_function",
            function,
            (
                self._quantized(self._argument(node, 0, "input")),
                self._quantized_weight(weight, str(source.target), numbers),
                map_arg(bias, self._floats),
            ),
            {**rest, "scale": scale, "zero_point": zero_point},
            name=node.name,
        )
        self.values[node] = _Value(quantized=new)

    def _quantized_weight(self, observer: Node, path: str, numbers: Tensor) -> Node:
        """A node that reads a quantized weight; functions that share one get the same."""
        if observer not in self.weights:
            looks = self._observer(observer)
            looks(numbers)
            self.weights[observer] = self._new_name(f"{path.replace('.', '_')}_quantized")
            self.attributes[self.weights[observer]] = quantized_weight(numbers, looks)
        return self.graph.get_attr(self.weights[observer])

    def _dynamic_linear(self, node: Node, weight: Tensor, bias: Arg) -> None:
        """`F.linear` as a layer, which has the quantized weight."""
        layer = Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
        layer.weight = Parameter(weight.detach(), requires_grad=False)
        if bias is not None:
            if bias.op != "get_attr":
                self._on_floats(node)
                return
            layer.bias = Parameter(attribute_at(self.model, bias.target).detach(), requires_grad=False)
        layer.qconfig = self.plan.qconfigs[node.name]
        path = self._new_name(f"_{node.name}")
        self.attributes[path] = DynamicLinear.from_float(layer)
        new = self.graph.call_module(path, (self._floats(self._argument(node, 0, "input")),))
        self.values[node] = _Value(floats=new)

    @staticmethod
    def _argument(node: Node, at: int, name: str) -> Argument:
        return node.args[at] if at < len(node.args) else node.kwargs.get(name)


def _writes(node: Node) -> bool:
    """Whether a node writes to a tensor, so that it is kept although nobody uses its result."""
    return node.op in ("call_function", "call_method") and node.is_impure()


def _narrowed(plan: InsertionPlan, model: GraphModule, mapping: QConfigMapping) -> InsertionPlan:
    """The plan without what a mapping leaves on floats. `AssertionError` where it asks for something else."""
    scopes = {name: (path, None) for name, path in plan.scopes.items()}
    nodes = [node for node in model.graph.nodes if node.name in plan.qconfigs]
    qconfigs = qconfigs_of(nodes, model, mapping, scopes)
    for name, qconfig in qconfigs.items():
        if qconfig is not None and not qconfig_equals(qconfig, plan.qconfigs[name]):
            raise PreconditionError(
                f"convert_fx(qconfig_mapping=...): each QConfig must be that of prepare_fx, or None, but {name} has "
                f"{qconfig} now, and was prepared with {plan.qconfigs[name]}"
            )
    modes = {name: mode for name, mode in plan.modes.items() if qconfigs[name] is not None}
    return replace(plan, modes=modes, qconfigs=qconfigs)


def convert(model: GraphModule, custom: ConvertCustomConfig, mapping: QConfigMapping | None = None) -> GraphModule:
    """The quantized form of a prepared model. What has None in a mapping stays on floats."""
    plan: InsertionPlan = model.meta[KEY].of(model.graph)
    return _Conversion(model, _narrowed(plan, model, mapping) if mapping else plan, custom).run()
