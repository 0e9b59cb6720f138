"""`make_fx`: the graph of the operators that a function runs on given arguments."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack

from weft._autograd.node import node_name, snake_case
from weft._base.guards import is_list_or_tuple
from weft._base.types import AnyCallable, Arg, Args, Kwargs, Result
from weft._interop.aten.functions import DerivativeOverload, innermost_mode
from weft._lazy.value import Value
from weft._tensor.overriding import setting
from weft._tensor.tensor import Tensor, operand, wrap
from weft.errors import UnsupportedCallError, ValueRangeError
from weft.fx._names import node_name as own_name
from weft.fx._tracer import Tracer
from weft.fx.graph import Graph, PyTreeCodeGen, PyTreeInfo
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node
from weft.nn import Module, Parameter
from weft.ops._aten import AtenOverload, aten
from weft.utils._fake_tensor import FakeTensorMode
from weft.utils._python_dispatch import TorchDispatchMode
from weft.utils._pytree import tree_flatten, tree_map

DecompositionTable = Mapping[AtenOverload, AnyCallable]
_MODES = ("real", "fake", "symbolic")


class PythonKeyTracer(Tracer):
    """Makes the nodes, and attributes of the root for tensors that the function reads from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Module()
        self.graph = Graph(tracer_cls=type(self))
        self.tensor_attrs = {}

    def constant(self, x: Tensor) -> Node:
        """The node that reads a tensor."""
        if x not in self.tensor_attrs:
            is_parameter = isinstance(x, Parameter)
            path = self.get_fresh_qualname("_param_constant" if is_parameter else "_tensor_constant")
            with setting(dispatchers=()):
                setattr(self.root, path, x if is_parameter else x.detach())
            self.tensor_attrs[x] = path
        return self.create_node("get_attr", self.tensor_attrs[x], (), {})

    def operator_node(self, func: AtenOverload, args: Args, kwargs: Kwargs) -> Node:
        """A node that calls an operator, and is called after it."""
        return self.create_node("call_function", func, args, kwargs, own_name(func.__name__.partition(".")[0]))


class ProxyTorchDispatchMode(TorchDispatchMode):
    """Adds a node to the tracer's graph for each operator, and knows which node each value is the result of."""

    def __init__(self, tracer: PythonKeyTracer, decomposition_table: DecompositionTable | None = None) -> None:
        self.tracer = tracer
        self._table = decomposition_table or {}
        self._nodes: dict[int, tuple[Value, Node]] = {}  # by the ids of values, which are kept
        self._applications: dict[tuple[int, int], Node] = {}

    @classmethod
    def is_infra_mode(cls) -> bool:
        """True, as in PyTorch."""
        return True

    def track(self, x: Arg, node: Node) -> None:
        """Note that a tensor, or each of several, is the result of a node."""
        if isinstance(x, Tensor):
            value = _value_of(x)
            self._nodes[id(value)] = (value, node)
            node.meta.setdefault("val", x)
        elif is_list_or_tuple(x):
            for at, part in enumerate(x):
                if isinstance(part, Tensor):
                    self.track(part, self._item(node, at))

    def _item(self, node: Node, at: int) -> Node:
        return self.tracer.create_node("call_function", operator.getitem, (node, at), {})

    def node_of(self, x: Tensor) -> Node:
        """The node of a tensor, or of a constant."""
        node = self._node_of(_value_of(x))
        return self.tracer.constant(x) if node is None else node

    def noted(self, x: Arg) -> Arg:
        """The node of a tensor; anything else as it is."""
        return self.node_of(x) if isinstance(x, Tensor) else x

    def _node_of(self, value: Value) -> Node | None:
        """The node of a value; None for one that depends on no argument.

        What was recorded below of operators, such as a sum of gradients, becomes nodes here, from the recorded graph.
        """
        entry = self._nodes.get(id(value))
        if entry is not None:
            return entry[1]
        if value.origin is None or not value.inputs:
            return None
        nodes = [None if x.aval.weak else self._node_of(x) for x in value.inputs]
        if not any(nodes):
            return None
        signature = value.origin.signature
        name = signature.call.op.name if signature.call is not None else snake_case(node_name(signature))
        if name in ("alias", "detach", "carry") and nodes[-1] is not None:
            return nodes[-1]
        key = (id(value.inputs), id(signature))  # the outputs of an application are parts of one node
        node = self._applications.get(key)
        if node is None:
            args = tuple([self._argument(x, own) for x, own in zip(value.inputs, nodes, strict=True)])
            target = aten.add.Tensor if name == "add" and len(args) == 2 else DerivativeOverload(name, signature)
            node = self._applications[key] = self.tracer.operator_node(target, args, {})
        result = node if len(signature.outputs) == 1 else self._item(node, value.origin.index)
        self._nodes[id(value)] = (value, result)
        return result

    def _argument(self, value: Value, node: Node | None) -> Arg:
        if node is not None:
            return node
        return value.number if value.aval.weak else self.tracer.constant(wrap(value))

    def __torch_dispatch__(
        self, func: AtenOverload, types: Iterable[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> Result:
        """Call `func`, and add its node."""
        kwargs = kwargs or {}
        if func in self._table:
            with self:
                return self._table[func](*args, **kwargs)
        tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        if func is aten._local_scalar_dense.default and self._node_of(_value_of(tensors[0])) is not None:
            raise UnsupportedCallError(
                "It appears that you're trying to get value out of a tracing tensor with "
                f"{func} - erroring out! A graph has one path, whatever the elements are: choose by torch.where, or "
                "pass the number as an argument"
            )
        if func is aten.lift_fresh.default:
            result = func(*args, **kwargs)
            if result is not args[0]:  # a fake of a constant
                self.track(result, self.tracer.constant(args[0]))
            return result
        noted = tree_map(self.noted, (args, kwargs))
        result = func(*args, **kwargs)
        self.track(result, self.tracer.operator_node(func, tuple(noted[0]), noted[1]))
        return result


def _value_of(x: Tensor) -> Value:
    with setting(by_classes=False, by_operators=False, dispatchers=()):
        return operand(x)


def get_proxy_mode() -> ProxyTorchDispatchMode | None:
    """The mode of the `make_fx` that traces, or None."""
    return innermost_mode(ProxyTorchDispatchMode)


def make_fx(
    f: AnyCallable,
    decomposition_table: DecompositionTable | None = None,
    tracing_mode: str = "real",
    _allow_non_fake_inputs: bool = False,
    *,
    pre_dispatch: bool = False,
    record_module_stack: bool = False,
    **_: Arg,
) -> Callable[..., GraphModule]:
    """A function that runs `f` on its arguments, and returns a module with the graph of the operators that were run.

    `f` may take derivatives: a backward pass is a part of the graph. `decomposition_table` has functions that are run
    in place of operators. In the modes "fake" and "symbolic", nothing is computed; sizes are numbers in all of them.
    `ValueError` for another mode.
    """
    del pre_dispatch, record_module_stack
    if tracing_mode not in _MODES:
        raise ValueRangeError(f"Unexpected tracing type: {tracing_mode!r}; expected one of {', '.join(_MODES)}")

    def traced(*args: Arg) -> GraphModule:
        tracer = PythonKeyTracer()
        proxies = ProxyTorchDispatchMode(tracer, decomposition_table)
        fakes = FakeTensorMode(allow_non_fake_inputs=True) if tracing_mode != "real" else None
        leaves, spec = tree_flatten(args)
        names = _names_of(f, args, len(leaves))
        own: list[Arg] = []
        for name, x in zip(names, leaves, strict=True):
            node = tracer.create_node("placeholder", f"{name}_1", (), {})
            if isinstance(x, Tensor):
                # A tensor of its own, so that what `f` reads from elsewhere is no argument though it be the same one.
                x = _same_leaf(x) if fakes is None else fakes.from_tensor(x)
                proxies.track(x, node)
            own.append(x)
        with ExitStack() as stack:
            if fakes is not None:
                stack.enter_context(fakes)
            stack.enter_context(proxies)
            result = f(*spec.unflatten(own))
        outputs, out_spec = tree_flatten(result)
        noted = list(map(proxies.noted, outputs))
        is_nested = len(leaves) != len(args)  # then the graph's function takes and returns leaves
        tracer.create_node("output", "output", (noted if is_nested else out_spec.unflatten(noted),), {})
        if is_nested:
            whole = [f"arg_{at}" for at in range(len(args))]
            _, in_spec = tree_flatten(list(args))
            tracer.graph.set_codegen(PyTreeCodeGen(PyTreeInfo(whole, in_spec, out_spec)))
        tracer.graph.eliminate_dead_code(_may_be_dropped)
        return GraphModule(tracer.root, tracer.graph)

    return traced


def _may_be_dropped(node: Node) -> bool:
    return node.op in ("placeholder", "output") or (
        isinstance(node.target, AtenOverload) and node.target.schema.is_mutable
    )


def _same_leaf(x: Tensor) -> Tensor:
    return x.detach().requires_grad_(x.requires_grad)


def _names_of(f: AnyCallable, args: Args, count: int) -> list[str]:
    """The names of placeholders: those of the parameters, if each argument is one value."""
    if count == len(args):
        try:
            names = [p.name for p in inspect.signature(f).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        except (TypeError, ValueError):
            names = []
        if len(names) >= count:
            return names[:count]
    return [f"arg{at}" for at in range(count)]
