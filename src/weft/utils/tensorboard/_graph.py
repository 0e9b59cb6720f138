"""TensorBoard's graph of a module: the operators that one call records, in the scopes of the modules."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from weft._base.state import Pending, ambient, using
from weft._base.types import PyTree
from weft._lazy.value import Value, inputs_first, tick
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError
from weft.nn import Module
from weft.utils.tensorboard._protos import (
    AttrValue,
    DeviceStepStats,
    GraphDef,
    Message,
    NodeDef,
    RunMetadata,
    StepStats,
    TensorShapeProto,
    VersionDef,
)

_PRODUCER = 22  # the version of the graph format


def graph(model: Module, args: PyTree, verbose: bool = False) -> tuple[Message, Message]:
    """The operators that `model(*args)` records in evaluation mode without gradients. Nothing is computed.

    If the model reads a value, the graph is cut there: the value appears as a constant.
    """
    if not isinstance(model, Module):
        raise ArgumentError(f"add_graph(): expected a module, got {type(model).__name__}")
    inputs = [args] if isinstance(args, Tensor) else args
    if not isinstance(inputs, (tuple, list)) or not inputs:
        raise ArgumentError(f"add_graph(): expected a tensor or a tuple of tensors for the model, got {args!r}")
    region = Pending(sys.maxsize)
    scopes = _Scopes(model)
    drawing = _Drawing(scopes)
    drawing.name_leaves(model, inputs)
    outer = ambient().pending
    try:
        with _evaluating(model), scopes.tracked(), using(pending=region, grad=False, eager=False, capture=None):
            results = model(*inputs)
    finally:
        outer.absorb(region)  # values that the model keeps may be read later
    drawing.draw(region, _tensors(results))
    graph_def = GraphDef(node=drawing.nodes, versions=VersionDef(producer=_PRODUCER))
    if verbose:
        print(graph_def)
    return graph_def, RunMetadata(step_stats=StepStats(dev_stats=[DeviceStepStats(device="/device:CPU:0")]))


def _tensors(nested: PyTree) -> Iterator[Tensor]:
    if isinstance(nested, Tensor):
        yield nested
    elif isinstance(nested, Mapping):
        yield from _tensors(list(nested.values()))
    elif isinstance(nested, (tuple, list)):
        for part in nested:
            yield from _tensors(part)


@contextmanager
def _evaluating(model: Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


class _Scopes:
    """The module whose call was active at each recording: pairs of (number of a recording, scope from then on)."""

    def __init__(self, model: Module) -> None:
        root = type(model).__name__
        self.names: dict[int, str] = {}
        self._modules: list[Module] = []
        paths = {"": root}
        for path, module in model.named_modules():
            if path:
                parent, _, last = path.rpartition(".")
                paths[path] = f"{paths[parent]}/{type(module).__name__}[{last}]"
            self.names[id(module)] = paths[path]
            self._modules.append(module)
        self._changes: list[tuple[int, str]] = [(0, root)]
        self._open = [root]

    @contextmanager
    def tracked(self) -> Iterator[None]:
        """Track the calls of the modules within the block."""
        with ExitStack() as hooks:
            for module in self._modules:
                for handle in (
                    module.register_forward_pre_hook(self._enter, prepend=True),
                    module.register_forward_hook(self._leave, always_call=True),
                ):
                    hooks.callback(handle.remove)
            yield

    def _enter(self, module: Module, args: PyTree) -> None:
        self._open.append(self.names[id(module)])
        self._changes.append((tick(), self._open[-1]))

    def _leave(self, module: Module, args: PyTree, output: PyTree) -> None:
        self._open.pop()
        self._changes.append((tick(), self._open[-1]))

    def at(self, time: int) -> str:
        """The innermost scope that was active at a recording."""
        return self._changes[bisect_right(self._changes, time, key=lambda change: change[0]) - 1][1]


class _Drawing:
    """The nodes of a graph, one for each value."""

    def __init__(self, scopes: _Scopes) -> None:
        self.nodes: list[Message] = []
        self._scopes = scopes
        self._leaves: dict[Value, tuple[str, str]] = {}  # name and kind of inputs and parameters
        self._recorded: set[Value] = set()
        self._names: dict[Value, str] = {}
        self._uses: Counter[str] = Counter()

    def name_leaves(self, model: Module, inputs: Sequence[PyTree]) -> None:
        """Give names to the model's parameters and buffers, and to the inputs."""
        for module in model.modules():
            own = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
            for name, tensor in own:
                self._leaves[tensor._read()] = f"{self._scopes.names[id(module)]}/{name}", "Parameter"
        for number, tensor in enumerate(_tensors(inputs), 1):
            self._leaves[tensor._read()] = f"input/input.{number}", "IO Node"

    def draw(self, region: Sequence[Value], results: Iterable[Tensor]) -> None:
        """Draw the results, and what they depend on in a recorded region."""
        self._recorded = {value for value in region if value.is_pending and value not in self._leaves}
        for number, result in enumerate(results, 1):
            last = result._read()
            for value in inputs_first(last, self._is_new, self._recorded.__contains__):
                self._draw(value)
            self._add(f"output/output.{number}", "IO Node", last, [self._names[last]])

    def _is_new(self, value: Value) -> bool:
        return value not in self._names and not value.aval.weak

    def _draw(self, value: Value) -> None:
        if value not in self._recorded:
            name, kind = self._leaves.get(value, (f"{self._scopes.at(0)}/constant", "Constant"))
            self._names[value] = self._add(name, kind, value, [])
            return
        assert value.origin is not None, "a recorded value has an origin"
        signature = value.origin.signature
        name = f"{self._scopes.at(value.time)}/{signature.name}"
        inputs = [self._names[x] for x in value.inputs if not x.aval.weak]
        self._names[value] = self._add(name, signature.name, value, inputs, repr(signature.call or signature))

    def _add(self, name: str, kind: str, value: Value, inputs: list[str], detail: str = "") -> str:
        self._uses[name] += 1
        unique = name if self._uses[name] == 1 else f"{name}_{self._uses[name] - 1}"
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in value.aval.shape])
        attributes = {
            "_output_shapes": AttrValue(list=AttrValue.ListValue(shape=[shape])),
            "attr": AttrValue(s=detail.encode()),
        }
        self.nodes.append(NodeDef(name=unique, op=kind, input=inputs, attr=attributes))
        return unique
