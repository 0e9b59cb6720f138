"""Running graphs node by node, and rewriting them so."""

from __future__ import annotations

from collections.abc import Iterator

from weft._base.types import Arg, Args, AttributeValue, Kwargs, PyTree, Result
from weft.errors import OutOfRangeError, PreconditionError
from weft.fx import traceback as fx_traceback
from weft.fx._paths import attribute_at
from weft.fx._tracer import Tracer
from weft.fx.graph import Graph
from weft.fx.graph_module import GraphModule
from weft.fx.node import Argument, Node, Target, map_aggregate, map_arg
from weft.fx.proxy import Proxy
from weft.nn._module import Module


class Interpreter:
    """Runs a graph node by node. Subclasses override the method of a kind of node, or `run_node`.

    `graph` is that of the module unless it is given. With `garbage_collect_values` a result is let go of after its
    last use; `env` has those that are kept, by node.
    """

    def __init__(self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module = module
        self.submodules = dict(module.named_modules())
        self.graph: Graph = graph if graph is not None else getattr(module, "graph")  # noqa: B009  any module with one
        self.env: dict[Node, Result] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.args_iter: Iterator[Arg] = iter(())
        self.user_to_last_uses: dict[Node, list[Node]] = {}
        if garbage_collect_values:
            seen: set[Node] = set()
            for user in reversed(self.graph.nodes):
                for node in user.all_input_nodes:
                    if node not in seen:
                        seen.add(node)
                        self.user_to_last_uses.setdefault(user, []).append(node)

    def run(
        self, *args: Arg, initial_env: dict[Node, Result] | None = None, enable_io_processing: bool = True
    ) -> Result:
        """The result of the graph for these arguments, one for each placeholder.

        `initial_env` has results of nodes that are then not run. Without `enable_io_processing`, arguments and result
        are those of the graph, also if its code takes trees. An error gets a note that says at which node it was.
        """
        self.env = {} if initial_env is None else dict(initial_env)
        self.args_iter = iter(self.graph.process_inputs(*args) if enable_io_processing else args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback:
                    error.add_note(_position_note(node))
                raise
            # A graph that is run node by node would keep every intermediate result.
            for unused in self.user_to_last_uses.get(node, ()):
                del self.env[unused]
            if node.op == "output":
                result = self.env[node]
                return self.graph.process_outputs(result) if enable_io_processing else result
        return None

    def boxed_run(self, args_list: list[Arg]) -> Result:
        """`run` with the arguments of a list, which is emptied, so that they can be let go of."""
        inputs = self.graph.find_nodes(op="placeholder")
        if len(args_list) != len(inputs):
            which = "extra" if len(args_list) > len(inputs) else "missing"
            raise OutOfRangeError(
                f"boxed_run: {which} arguments: the graph has {len(inputs)} inputs, got {len(args_list)} arguments"
            )
        env = dict(zip(inputs, args_list, strict=True))
        args_list.clear()
        return self.run(initial_env=env, enable_io_processing=False)

    def run_node(self, n: Node) -> Result:
        """The result of a node, whose inputs are in `env`: what the method of its kind returns."""
        with fx_traceback.set_current_meta(n, f"Interpreter_{type(self).__name__}"):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: Kwargs) -> Result:
        """The next argument of the call; for `*args`, all that are left."""
        del kwargs
        if str(target).startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise OutOfRangeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: Kwargs) -> AttributeValue:
        """The attribute of the module at a dotted path."""
        del args, kwargs
        return self.fetch_attr(str(target))

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: Kwargs) -> Result:
        """The result of a function."""
        if isinstance(target, str):
            raise PreconditionError(f"call_function: the target must be a function, got {target!r}")
        return target(*args, **kwargs)

    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: Kwargs) -> Result:
        """The result of a method of the first argument."""
        obj, *rest = args
        return getattr(obj, str(target))(*rest, **kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: Kwargs) -> Result:
        """The result of a submodule."""
        return self.fetch_attr(str(target))(*args, **kwargs)

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: Kwargs) -> Result:
        """What the graph returns."""
        del target, kwargs
        return args[0]

    def fetch_attr(self, target: str) -> AttributeValue:
        """The object at a dotted path of the module; `RuntimeError` if there is none."""
        try:
            return attribute_at(self.module, target)
        except AttributeError as error:
            raise OutOfRangeError(f"Node referenced nonexistent target {target}: {error}") from error

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[Args, Kwargs]:
        """The arguments of a node, with results in place of nodes."""
        return self.map_nodes_to_values((n.args, dict(n.kwargs)), n)

    def map_nodes_to_values(self, args: Argument, n: Node) -> PyTree:
        """Arguments of `n` with results in place of nodes."""

        def value_of(node: Node) -> Result:
            if node not in self.env:
                raise OutOfRangeError(
                    f"Node {n} referenced nonexistent value {node}! Run Graph.lint() to diagnose such issues"
                )
            return self.env[node]

        return map_arg(args, value_of)


def _position_note(node: Node) -> str:
    text = f"While executing {node.format_node()}"
    return text + (f"\nOriginal traceback:\n{node.stack_trace}" if node.stack_trace else "")


class _AppendingTracer(Tracer):
    """Adds to a graph, where every call of a module is a node."""

    def __init__(self, graph: Graph, module: Module) -> None:
        super().__init__()
        self.graph, self.root = graph, module
        self.submodule_paths = {child: path for path, child in module.named_modules()}
        members = (*module.named_modules(), *module.named_buffers(), *module.named_parameters())
        self._attributes = {id(member): path for path, member in members}

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        del m, module_qualified_name
        return True


class Transformer(Interpreter):
    """Makes a new graph by running one on proxies. Subclasses override the method of a kind of node.

    `transform()` returns a `GraphModule`; a method may do anything with the proxies that it gets, and returns one.
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)  # pyright: ignore[reportPrivateUsage]  PyTorch's name
        self.tracer = _AppendingTracer(self.new_graph, module)

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: Kwargs) -> Proxy:
        """An input of the new graph."""
        del kwargs
        default = {"default_value": args[0]} if args else {}
        return Proxy(self.new_graph.placeholder(str(target), **default), self.tracer)

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: Kwargs) -> Proxy:
        """A use of an attribute in the new graph."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: Kwargs) -> Result:
        """A call of a module in the new graph."""
        module = self.fetch_attr(str(target))
        return self.tracer.call_module(module, module.forward, args, kwargs)

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: Kwargs) -> Result:
        """A call of a function in the new graph."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The module with the new graph."""
        with fx_traceback.preserve_node_meta():
            result = self.run(enable_io_processing=False)
        outputs = self.graph.find_nodes(op="output")
        if outputs:
            returned = map_aggregate(result, lambda x: x.node if isinstance(x, Proxy) else x)
            new = self.new_graph.output(returned, outputs[0].type)
            new.meta = dict(outputs[0].meta)
        return GraphModule(self.module, self.new_graph)
