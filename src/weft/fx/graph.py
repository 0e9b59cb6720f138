"""Graphs: programs as lists of nodes that can be changed."""

# Graphs, their nodes and what works on them know each other, by names of PyTorch's.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from operator import attrgetter
from typing import Any, NoReturn

from weft._base.types import Annotation, AnyCallable, Arg, AttributeValue, PyTree
from weft.errors import ArgumentError, LacksAttributeError, OutOfRangeError, PreconditionError
from weft.fx import _names
from weft.fx._codegen import CodeGen as CodeGen
from weft.fx._codegen import PythonCode as PythonCode
from weft.fx._codegen import PyTreeCodeGen as PyTreeCodeGen
from weft.fx._codegen import PyTreeInfo as PyTreeInfo
from weft.fx._paths import attribute_at, has_attribute_at
from weft.fx.node import Argument, Node, Target, map_arg

_PyTreeCodeGen = PyTreeCodeGen
_PyTreeInfo = PyTreeInfo
_Namespace = _names.Namespace
TransformCodeFunc = Callable[[list[str]], list[str]]
_NO_DEFAULT: Any = object()


class NodeList(Sequence[Node]):
    """The nodes of a graph, in order. Nodes may be added and erased while one iterates over them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        node = self.graph._root._next
        while node is not self.graph._root:
            yield from [] if node._erased else [node]
            node = node._next

    def __reversed__(self) -> Iterator[Node]:
        node = self.graph._root._prev
        while node is not self.graph._root:
            yield from [] if node._erased else [node]
            node = node._prev

    def __getitem__(self, index: Arg) -> NoReturn:
        raise ArgumentError("the nodes of a graph have no indices, since it may change: take list(graph.nodes)")

    def __contains__(self, node: object) -> bool:
        return isinstance(node, Node) and node.graph is self.graph and not node._erased


class Graph:
    """A program as a list of nodes: inputs, uses of attributes, calls, and at last the output.

    `symbolic_trace` makes one of a function or module; `GraphModule` makes a module of it that can be called. Methods
    named after the kinds of nodes add one at the point of insertion, which is the end, or what `inserting_before` and
    `inserting_after` say.
    """

    def __init__(
        self,
        owning_module: Arg = None,
        tracer_cls: type | None = None,
        tracer_extras: Mapping[str, object] | None = None,
    ) -> None:
        self._root = Node(self, "", "output", "root", (), {})
        self._root._erased = True
        self._insert_before = self._root
        self._len = 0
        self._graph_namespace = _names.Namespace()
        self._owning_module = owning_module
        self._owners = 0
        self._tracer_cls = tracer_cls
        self._tracer_extras = tracer_extras
        self._codegen = CodeGen()
        self._origin = ""

    @property
    def owning_module(self) -> AttributeValue:
        """The `GraphModule` whose graph this is, or None if there are none or several."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, mod: Arg) -> None:
        if mod is self._owning_module:
            return
        self._owners += mod is not None
        self._owning_module = mod if self._owners <= 1 else None

    @property
    def nodes(self) -> NodeList:
        """The nodes, in order."""
        return NodeList(self)

    def output_node(self) -> Node:
        """The node that returns."""
        outputs = self.find_nodes(op="output")
        if len(outputs) != 1:
            raise PreconditionError(f"the graph must have one output node, and has {len(outputs)}")
        return outputs[0]

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        """The nodes of a kind, or only those with this target, in order."""
        del sort
        if op == "call_function" and target is None:
            raise PreconditionError("find_nodes: for call_function a target is needed")
        return [node for node in self.nodes if node.op == op and (target is None or node.target == target)]

    # --- adding -----------------------------------------------------------------------------------------------

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        name: str | None = None,
        type_expr: Annotation = None,
    ) -> Node:
        """Add a node. Its name is that of its target, or `name`, with a number if there is one of this name already."""
        own = self._graph_namespace.create_name(name or self._target_to_str(target))
        args, kwargs = () if args is None else args, {} if kwargs is None else kwargs
        node = Node(self, own, op, target, args, kwargs, type_expr)
        self._insert_before.prepend(node)
        self._len += 1
        return node

    def _target_to_str(self, target: Target) -> str:
        return _names.node_name(target)

    def placeholder(self, name: str, type_expr: Annotation = None, default_value: Arg = _NO_DEFAULT) -> Node:
        """Add an input. `name` may begin with `*` or `**`, as in the head of a function."""
        args = () if default_value is _NO_DEFAULT else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Annotation = None) -> Node:
        """Add a use of the attribute at a dotted path of the module: a parameter, a buffer, a constant, a module."""
        if self.owning_module is not None and not has_attribute_at(self.owning_module, qualified_name):
            warnings.warn(
                "Attempted to insert a get_attr Node with no underlying reference in the owning GraphModule! It has no "
                f"attribute {qualified_name!r}: add it before it runs",
                stacklevel=2,
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Annotation = None,
    ) -> Node:
        """Add a call of the module at a dotted path."""
        if self.owning_module is not None and not has_attribute_at(self.owning_module, module_name):
            raise LacksAttributeError(
                f"call_module: the module of this graph has no submodule {module_name!r}; call add_submodule first"
            )
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Annotation = None,
    ) -> Node:
        """Add a call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: AnyCallable,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Annotation = None,
        name: str | None = None,
    ) -> Node:
        """Add a call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result: Argument, type_expr: Annotation = None) -> Node:
        """Add the output: what the program returns."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def inserting_before(self, n: Node | None = None) -> AbstractContextManager[None]:
        """New nodes stand before `n`, or at the beginning: for a `with` block, or until the next call."""
        return self._inserting("before", self._root._next if n is None else n)

    def inserting_after(self, n: Node | None = None) -> AbstractContextManager[None]:
        """New nodes stand after `n`, or at the end: for a `with` block, or until the next call."""
        return self._inserting("after", self._root if n is None else n._next, n)

    def _inserting(self, side: str, point: Node, n: Node | None = None) -> AbstractContextManager[None]:
        if (n or point).graph is not self:
            raise PreconditionError(f"Node to insert {side} is not in graph.")
        previous, self._insert_before = self._insert_before, point
        return self._restoring(previous)

    @contextmanager
    def _restoring(self, point: Node) -> Generator[None]:
        try:
            yield
        finally:
            self._insert_before = point

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Argument] = lambda x: x) -> Node:
        """Add a copy of a node of any graph; `arg_transform` gives this graph's argument for each of its inputs."""
        args, kwargs = map_arg((node.args, dict(node.kwargs)), arg_transform)
        result = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        result.meta = copy.copy(node.meta)
        return result

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Argument:
        """Add copies of the nodes of `g` but its output; returns what `g` returns, in terms of this graph.

        `val_map` gives the nodes of this graph for some of `g`, such as its inputs, which are then not copied; the
        others are noted there. With `return_output_node` the result is a pair of that and of the output of `g`.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: dict[int, object] | None = None) -> Graph:
        memo = {} if memo is None else memo
        new = Graph(tracer_cls=self._tracer_cls, tracer_extras=self._tracer_extras)
        new._codegen = copy.deepcopy(self._codegen, memo)
        new._origin = self._origin
        memo[id(self)] = new
        val_map: dict[Node, Node] = {}
        for node in self.nodes:
            copied = val_map[node] = new.node_copy(node, lambda n: val_map[n])
            memo[id(node)] = copied
        return new

    # --- removing ---------------------------------------------------------------------------------------------

    def erase_node(self, to_erase: Node) -> None:
        """Remove a node that nobody uses."""
        if to_erase.graph is not self:
            raise OutOfRangeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase.users:
            raise OutOfRangeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: "
                f"{to_erase.users}!"
            )
        if to_erase._erased:
            return
        if self._insert_before is to_erase:
            self._insert_before = to_erase._next
        to_erase.args, to_erase.kwargs = (), {}
        before, after = to_erase._prev, to_erase._next
        before._next, after._prev = after, before  # its own links stay, for those who iterate and stand at it
        to_erase._erased = True
        self._len -= 1

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Remove the nodes that nobody uses and that do nothing else (`Node.is_impure`). Returns whether it did.

        What a program does to its arguments by other names than `Node.is_impure` knows is lost with such nodes.
        """
        self.lint()
        is_impure = is_impure_node or Node.is_impure
        before = self._len
        for node in reversed(self.nodes):
            if not node.users and node.op not in ("placeholder", "output") and not is_impure(node):
                self.erase_node(node)
        return self._len < before

    # --- checking and showing ---------------------------------------------------------------------------------

    def lint(self) -> None:
        """Raise `RuntimeError` if the graph is no program: names twice, nodes used before they are computed, targets
        that the owning module does not have, or that have another type than the node needs.
        """
        names: set[str] = set()
        defined: set[Node] = set()
        for node in self.nodes:
            for other in node.all_input_nodes:
                if other.graph is not self:
                    raise OutOfRangeError(
                        f"Argument '{other}' of Node '{node}' does not belong to this Graph, but was used as an "
                        "argument! If you are copying nodes from another graph, make sure to use ``arg_transform`` on "
                        f"node_copy() to remap values\n{self}"
                    )
                if other not in defined:
                    raise OutOfRangeError(
                        f"Argument '{other}' of Node '{node}' was used before it has been defined! Please check that "
                        f"Nodes in the graph are topologically ordered\n{self}"
                    )
            if node.name in names:
                raise OutOfRangeError(f"Node redefined name {node.name}!")
            names.add(node.name)
            defined.add(node)
            if self.owning_module is not None and node.op in ("get_attr", "call_module"):
                self._lint_path(node)

    def _lint_path(self, node: Node) -> None:
        try:
            target = attribute_at(self.owning_module, node.target)
        except AttributeError as error:
            raise OutOfRangeError(
                f"Node {node} target {node.target} references a nonexistent attribute: {error}; add it, or erase "
                f"the node"
            ) from error
        if node.op == "call_module" and not callable(target):
            raise OutOfRangeError(
                f"Node {node} target {node.target} must be a module to be called, and is of {type(target)}"
            )

    def python_code(self, root_module: str = "self", *, verbose: bool = False) -> PythonCode:
        """The graph as the source of a function; `root_module` is the name of the module in it.

        Functions of this package have the prefix `torch`, and their global is this package. With `verbose`, comments
        say where nodes come from.
        """
        return self._codegen.gen_python_code(self.nodes, root_module, verbose=verbose)

    def set_codegen(self, codegen: CodeGen) -> None:
        """Let another generator write the code of this graph."""
        self._codegen = codegen

    def on_generate_code(
        self, make_transformer: Callable[[TransformCodeFunc | None], TransformCodeFunc]
    ) -> AbstractContextManager[None]:
        """Let a function change the lines of generated code.

        `make_transformer` gets the function that does so until now, or None, and returns the new one, from lines (each
        with its end of line) to lines. It stays, unless the result is used in a `with` block, at whose end it goes.
        """
        previous = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(previous)

        @contextmanager
        def until_end() -> Generator[None]:
            try:
                yield
            finally:
                self._codegen._body_transformer = previous

        return until_end()

    def process_inputs(self, *args: Arg) -> PyTree:
        """The values of the placeholders, from the arguments of a call."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: PyTree) -> PyTree:
        """The result of a call, from the value of the output node."""
        return self._codegen.process_outputs(out)

    def __str__(self) -> str:
        return "\n    ".join(["graph():", *[str(node.format_node()) for node in self.nodes]])

    def print_tabular(self) -> None:
        """Print a table of the nodes."""
        head = ("opcode", "name", "target", "args", "kwargs")
        rows = [
            (node.op, node.name, _names.target_text(node.target), str(node.args), str(node.kwargs))
            for node in self.nodes
        ]
        widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
        for row in (head, ["-" * width for width in widths], *rows):
            print("  ".join([text.ljust(width) for text, width in zip(row, widths, strict=True)]).rstrip())


codegen_of: Callable[[Graph], CodeGen] = attrgetter("_codegen")
"""What generates the code of a graph."""
