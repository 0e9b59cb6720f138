"""The graph of an exported program: its operators as they were recorded, to look at and not to run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from weft._base.guards import is_dict, is_list, is_list_or_tuple, is_tuple
from weft._base.types import Arg
from weft._lazy.call import BoundOp, Exact
from weft._lazy.form import Form
from weft._lazy.signature import Signature
from weft.export._sizes import Sizes
from weft.ops._kinds import Many

Entry = Any
"""An argument in a file: {"node": name}, a number, a text, a bool, None, or a list of entries."""


@dataclass(frozen=True)
class Application:
    """An application of an operator. Inputs are `Ref`s among the arguments.

    outputs   the number of each output's value, and its index among the outputs
    """

    target: str
    args: tuple[Any, ...]
    outputs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Ref:
    """The number of a recorded value, as an argument."""

    number: int


@dataclass(frozen=True)
class ExportNode:
    """A line of a graph.

    op       "placeholder", "call_function" or "output", as in `torch.fx`
    target   the name of the operator, or of the state
    args     nodes, numbers, texts, and lists of these
    """

    name: str
    op: str
    target: str
    args: tuple[Any, ...]

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    def format_node(self) -> str:
        """The line that a graph prints for it."""
        arguments = ", ".join(map(_text, self.args))
        if self.op == "placeholder":
            return f"%{self.name} = placeholder({self.target})"
        if self.op == "output":
            return f"return {arguments}"
        return f"%{self.name} = {self.target}({arguments})"


class ProgramGraph:
    """The nodes of a program, in order. It prints one line for each."""

    def __init__(self, name: str, entries: Sequence[Sequence[Entry]]) -> None:
        self.name = name
        nodes: dict[str, ExportNode] = {}
        for own, op, target, args in entries:  # of a file, which may say anything
            if not type(own) is type(op) is type(target) is str:
                raise TypeError(f"a node is called {own!r}, {op!r}, {target!r}")
            nodes[own] = ExportNode(own, op, target, tuple([_argument(arg, nodes) for arg in args]))
        self._nodes = list(nodes.values())

    @property
    def nodes(self) -> list[ExportNode]:
        """The nodes, in order."""
        return list(self._nodes)

    def __iter__(self) -> Iterator[ExportNode]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def find_nodes(self, *, op: str, target: str | None = None) -> list[ExportNode]:
        """The nodes of a kind, or only those with this target."""
        return [node for node in self if node.op == op and target in (None, node.target)]

    def __str__(self) -> str:
        return "\n".join([f"graph of {self.name}:", *[f"    {node.format_node()}" for node in self]])

    __repr__ = __str__

    @property
    def code(self) -> str:
        """The graph in the form of Python code, to read."""
        inputs = ", ".join(["self", *[node.name for node in self.find_nodes(op="placeholder")]])
        lines = [node.format_node().replace("%", "") for node in self if node.op != "placeholder"]
        return "\n".join([f"def forward({inputs}):", *[f"    {line}" for line in lines]])

    def print_tabular(self) -> None:
        """Print a table of the nodes."""
        rows = [("opcode", "name", "target", "args"), *[(n.op, n.name, n.target, _text(n.args)) for n in self]]
        widths = [max(len(row[at]) for row in rows) for at in range(3)]
        for op, name, target, args in rows:
            print(op.ljust(widths[0]), name.ljust(widths[1]), target.ljust(widths[2]), args)


def applications(form: Form) -> tuple[Application, ...]:
    """The applications of operators in a region."""
    return tuple(
        [
            Application(signature.name, tuple(_arguments(signature, [Ref(i) for i in inputs])), tuple(values))
            for signature, inputs, values in form.applications
        ]
    )


def _arguments(signature: Signature, inputs: Sequence[Ref]) -> Iterator[Arg]:
    call: BoundOp | None = signature.call
    following = iter(inputs)
    if call is None:
        yield from inputs
        return
    for entry in call.static:
        if not isinstance(entry, Many):
            yield entry.value if isinstance(entry, Exact) else entry
        elif entry.count == 1:
            yield next(following)
        else:
            yield tuple([next(following) for _ in range(entry.count)])


def entries_of(
    recordings: Sequence[Sequence[Application]],
    leaves: Sequence[tuple[int, str, object]],
    results: Sequence[int],
    sizes: Sizes,
) -> list[list[Entry]]:
    """The nodes of a program, from its recordings with several sizes, in the form of a file.

    `leaves` are the numbers of what the program reads, each with the name and the target of a placeholder, or without a
    name and with a number instead. `results` are the numbers of what it returns and writes.
    """
    nodes: list[list[Entry]] = []
    names: dict[int, Entry] = {}
    name_counts: dict[str, int] = {}

    def fresh(text: str) -> str:
        base = re.sub(r"\W", "_", text)
        count = name_counts[base] = name_counts.get(base, -1) + 1
        return base if not count else f"{base}_{count}"

    def entry(columns: Sequence[Arg]) -> Entry:
        first = columns[0]
        if isinstance(first, Ref):
            return names[first.number]
        if is_tuple(first) and len({len(column) for column in columns}) == 1:
            return [entry(parts) for parts in zip(*columns, strict=True)]
        return sizes.json_constant(columns)

    for number, name, target in leaves:
        if name:
            own = fresh(name)
            nodes.append([own, "placeholder", target, []])
            names[number] = {"node": own}
        else:
            names[number] = target
    for columns in zip(*recordings, strict=True):
        first = columns[0]
        args = [entry(parts) for parts in zip(*[column.args for column in columns], strict=True)]
        # Views of all elements are steps of Weft's own, which a reader of the graph does not look for.
        if first.target == "alias" and len(first.outputs) == 1:
            names[first.outputs[0][0]] = args[0]
            continue
        own = fresh(first.target)
        nodes.append([own, "call_function", first.target, args])
        for number, index in first.outputs:
            names[number] = {"node": own}
            if len(first.outputs) > 1 or index:
                part = fresh("getitem")
                nodes.append([part, "call_function", "getitem", [{"node": own}, index]])
                names[number] = {"node": part}
    nodes.append(["output", "output", "output", [[names[number] for number in results]]])
    return nodes


def _argument(entry: Entry, nodes: dict[str, ExportNode]) -> Arg:
    if is_dict(entry):
        return nodes[entry["node"]]
    return [_argument(part, nodes) for part in entry] if is_list(entry) else entry


def _text(argument: object) -> str:
    if isinstance(argument, ExportNode):
        return f"%{argument.name}"
    if is_list_or_tuple(argument):
        parts = [_text(part) for part in argument]
        return f"[{', '.join(parts)}]" if is_list(argument) else f"({', '.join(parts)})"
    return str(argument)
