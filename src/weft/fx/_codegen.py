"""Python code of a graph, in the form of a function that can be read and run."""

# Graphs, their nodes and what works on them know each other, by names of PyTorch's.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import builtins
import enum
import inspect
import keyword
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import weft
from weft._base.device import device
from weft._base.guards import is_dict, is_list, is_list_or_tuple, is_slice, is_tuple
from weft._base.types import Arg, AttributeValue, PyTree
from weft._tensor.tensor import Tensor
from weft.fx import _names
from weft.fx import _pytree as fx_pytree
from weft.fx.node import Argument, Node, base_types
from weft.utils import _pytree as pytree
from weft.utils._pytree import TreeSpec, is_namedtuple_instance

_INFIX = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "truediv": "{} / {}", "floordiv": "{} // {}",
    "mod": "{} % {}", "pow": "{} ** {}", "matmul": "{} @ {}", "lshift": "{} << {}", "rshift": "{} >> {}",
    "and_": "{} & {}", "or_": "{} | {}", "xor": "{} ^ {}", "getitem": "{}[{}]", "eq": "{} == {}", "ne": "{} != {}",
    "lt": "{} < {}", "gt": "{} > {}", "le": "{} <= {}", "ge": "{} >= {}", "pos": "+{}", "neg": "-{}", "invert": "~{}",
}  # fmt: skip
_IN_PLACE = {f"i{name.strip('_')}": form.replace(" {}", "= {}") for name, form in _INFIX.items() if form[:3] == "{} "
             and name not in ("eq", "ne", "lt", "gt", "le", "ge")} | {"setitem": "{}[{}] = {}"}  # fmt: skip
BUILTINS: dict[str, Any] = {
    "inf": math.inf, "nan": math.nan, "NoneType": type(None), "torch": weft, "device": device,
}  # fmt: skip
"""What generated code finds besides Python's builtins."""


@dataclass
class PythonCode:
    """The code of a graph.

    src       the source of a function `forward`
    globals   what names in it stand for
    _lineno_map  for each line, counted from `_prologue_start`, the index of its node
    """

    src: str
    globals: dict[str, Any]
    _lineno_map: dict[int, int | None] | None
    _prologue_start: int = 0


class CodeGen:
    """Writes a graph as Python code. Subclasses change the function's head, or its results; see `Graph.set_codegen`."""

    _body_transformer: Callable[[list[str]], list[str]] | None = None
    _func_name = "forward"

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The line `def forward(self, ...):`; may be followed by statements that bind the inputs."""
        if not free_vars or free_vars[0] != "self":
            free_vars = ["self", *free_vars]
        return f"def {self._func_name}({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args: Argument, *, repr_fn: Callable[[object], str] = repr) -> str:
        """The line that returns."""
        return f"return {repr_fn(output_args)}"

    def process_inputs(self, *args: Arg) -> PyTree:
        """The values of the placeholders, from the arguments of a call."""
        return args

    def process_outputs(self, outputs: PyTree) -> PyTree:
        """The result of a call, from the value of the output."""
        return outputs

    def additional_globals(self) -> list[tuple[str, object]]:
        """Names, and what they stand for, that these methods use in the code."""
        return []

    def gen_python_code(self, nodes: Iterable[Node], root_module: str, *, verbose: bool = False) -> PythonCode:
        """The code of nodes. With `verbose`, comments say where they come from, and annotations what they hold."""
        return _Writer(self, list(nodes), root_module, verbose).code()


class PyTreeInfo(NamedTuple):
    """How the arguments and the result of a function consist of those of its graph."""

    orig_args: list[str]
    in_spec: TreeSpec
    out_spec: TreeSpec | None


class PyTreeCodeGen(CodeGen):
    """Code for a function whose arguments are trees of inputs, and whose result is a tree."""

    def __init__(self, pytree_info: PyTreeInfo) -> None:
        self.pytree_info = pytree_info

    def process_inputs(self, *inputs: Arg) -> PyTree:
        """The leaves of the arguments."""
        return fx_pytree.tree_flatten_spec(list(inputs), self.pytree_info.in_spec)

    def process_outputs(self, outputs: PyTree) -> PyTree:
        """The tree of the results."""
        if self.pytree_info.out_spec is None:
            return outputs
        leaves = outputs if is_list_or_tuple(outputs) else [outputs]
        return pytree.tree_unflatten(leaves, self.pytree_info.out_spec)

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The head, with a second line that takes the arguments apart."""
        names = self.pytree_info.orig_args
        inputs = names[1:] if names[:1] == ["self"] else names
        head = super().gen_fn_def(list(names), maybe_return_annotation)
        if not free_vars:
            return head
        bare = [text.split("=")[0].split(":")[0].strip() for text in free_vars]
        flat = f"fx_pytree.tree_flatten_spec([{', '.join(inputs)}], self._in_spec)"
        return f"{head}\n    {', '.join(bare)}, = {flat}"

    def generate_output(self, output_args: Argument, *, repr_fn: Callable[[object], str] = repr) -> str:
        """The line that puts the results together."""
        if self.pytree_info.out_spec is None:
            return super().generate_output(output_args, repr_fn=repr_fn)
        return f"return pytree.tree_unflatten({repr_fn(output_args)}, self._out_spec)"

    def additional_globals(self) -> list[tuple[str, object]]:
        """The modules whose functions the code calls."""
        return [("pytree", pytree), ("fx_pytree", fx_pytree)]


class _Writer:
    """One run of the generator."""

    def __init__(self, codegen: CodeGen, nodes: list[Node], root: str, verbose: bool) -> None:
        self.codegen, self.nodes, self.root, self.verbose = codegen, nodes, root, verbose
        self.globals: dict[str, AttributeValue] = dict(BUILTINS)
        self.names = _names.Namespace()
        self.variables = {node: self.names.create_name(node.name, node) for node in nodes if node.op != "output"}
        self.inputs: list[str] = []
        self.wrapped: dict[str, None] = {}
        self.annotation = ""
        self.last_trace: str | None = None

    def code(self) -> PythonCode:
        last_uses = _last_uses(self.nodes)
        for name, value in self.codegen.additional_globals():
            self.globals[name] = value
        lines: list[str] = []
        indices: list[int | None] = []
        for index, node in enumerate(self.nodes):
            own = self._trace_comment(node) if self.verbose else []
            if own and lines:
                own.insert(0, "")
            if statement := self._statement(node):
                # As in PyTorch's code: each variable is dropped after its last use, so that the generated function
                # keeps no result longer than needed.
                unused = " = ".join([self.variables[n] for n in last_uses[node]])
                own.append(f"{statement};  {unused} = None" if unused else statement)
            lines += own
            indices += [index] * len(own)
        if not lines:
            lines = ["pass"]
        if (transform := self.codegen._body_transformer) is not None:
            lines = [line.removesuffix("\n") for line in transform([f"{line}\n" for line in lines])]
        head = self.codegen.gen_fn_def(self.inputs, self.annotation)
        wraps = "\n".join([f'torch.fx._symbolic_trace.wrap("{name}")' for name in self.wrapped])
        # Functions that a program has wrapped have to be wrapped where the code is read again, too, or tracing it anew
        # would go into them.
        above = f"\n{wraps}\n\n{head}"
        body = "\n".join([line and f"    {line}" for line in lines])
        start = above.count("\n") + 1
        line_map = {at + 1: index for at, index in enumerate(indices)}
        return PythonCode(f"{above}\n{body}\n    ", self.globals, line_map, start)

    def _trace_comment(self, node: Node) -> list[str]:
        """A comment with the line of the program that a node comes from, where it differs from that before."""
        if node.op in ("placeholder", "output"):
            return []
        trace = (node.stack_trace or "").strip()
        if trace == self.last_trace:
            return []
        self.last_trace = trace
        if not trace:
            return ["# No stacktrace found for following nodes"]
        *_, position, source = ["", *trace.splitlines()]
        position = re.sub(r'File "(.*)", line (\d+), in', r"File: \1:\2 in", position.strip())
        return [f"# {position}, code: {source.strip()}"]

    # --- statements -------------------------------------------------------------------------------------------

    def _statement(self, node: Node) -> str:
        annotation = "" if node.type is None else f" : {_names.type_text(node.type, self.named)}"
        if self.verbose and (shape := _shape_text(node)):
            annotation = f': "{shape}"'
        own = f"{self.variables.get(node)}{annotation}"
        match node.op:
            case "placeholder":
                return self._placeholder(node, annotation)
            case "get_attr":
                return f"{own} = {_attribute(self.root, node.target)}"
            case "call_module":
                return f"{own} = {_attribute(self.root, node.target)}({self._arguments(node.args, node.kwargs)})"
            case "call_method":
                method = _attribute(self._operand(node.args[0], dotted=True), node.target)
                return f"{own} = {method}({self._arguments(node.args[1:], node.kwargs)})"
            case "call_function":
                return self._function_call(node, own)
            case _:
                return self._output(node)

    def _output(self, node: Node) -> str:
        if node.type is not None:
            self.annotation = f" -> {_names.type_text(node.type, self.named)}"
        write = self.codegen.generate_output
        parameters = inspect.signature(write).parameters.values()
        if any(p.name == "repr_fn" or p.kind is p.VAR_KEYWORD for p in parameters):
            return write(node.args[0], repr_fn=self.text)
        return write(node.args[0])  # a subclass whose method writes the arguments as `repr` does

    def _placeholder(self, node: Node, annotation: str) -> str:
        default = f" = {self.text(node.args[0])}" if node.args else ""
        self.inputs.append(f"{node.target}{annotation}{default}")
        name = node.target.replace("*", "")
        return f"{self.variables[node]} = {name}" if name != self.variables[node] else ""

    def _function_call(self, node: Node, own: str) -> str:
        function, name = node.target, getattr(node.target, "__name__", "")
        if getattr(function, "__module__", None) == "_operator" and not node.kwargs:
            if name in _INFIX and len(node.args) == _INFIX[name].count("{}"):
                texts = [self._operand(node.args[0]), *map(self.text, node.args[1:])]
                return f"{own} = {_INFIX[name].format(*texts)}"
            if name in _IN_PLACE and len(node.args) == _IN_PLACE[name].count("{}"):
                texts = [self.text(arg) for arg in node.args]
                return f"{_IN_PLACE[name].format(*texts)};  {own} = {texts[0]}"
        if function is getattr and _reads_attribute(node):
            return f"{own} = {_attribute(self.text(node.args[0]), node.args[1])}"
        global_name = self.named(_names.qualified_name(function), function)
        if node.meta.get("is_wrapped"):
            self.wrapped[global_name] = None
        return f"{own} = {global_name}({self._arguments(node.args, node.kwargs)})"

    def _arguments(self, args: Sequence[Argument], kwargs: dict[str, Argument]) -> str:
        return ", ".join([*map(self.text, args), *[f"{name} = {self.text(x)}" for name, x in kwargs.items()]])

    def _operand(self, argument: Argument, *, dotted: bool = False) -> str:
        """An argument before an operator, where a negative number needs parentheses, or a dot, where all do."""
        text = self.text(argument)
        is_number = isinstance(argument, int | float)
        return f"({text})" if is_number and (dotted or text.startswith("-")) else text

    # --- arguments --------------------------------------------------------------------------------------------

    def named(self, name: str, obj: object) -> str:
        """The name of an object in the code, under which its globals have it."""
        if name.startswith("torch.") and _names.public_name(obj) == name:
            return name
        if getattr(builtins, name, None) is obj:
            return name
        hint = name.replace(".", "_").replace("<locals>", "").replace("<lambda>", "lambda_")
        own = self.names.create_name(hint, obj)
        self.globals[own] = obj
        return own

    def text(self, argument: Argument) -> str:
        """An argument as code."""
        if isinstance(argument, Node):
            return self.variables[argument]
        if is_namedtuple_instance(argument):
            own: Arg = argument.__class__
            kind = self.named(_names.qualified_name(own), own)
            return f"{kind}({', '.join(map(self.text, argument))})"
        if is_tuple(argument):
            parts = list(map(self.text, argument))
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        if is_list(argument):
            return f"[{', '.join(map(self.text, argument))}]"
        if is_dict(argument):
            items = argument.items()
            return "{" + ", ".join([f"{key!r}: {self.text(x)}" for key, x in items]) + "}"
        if is_slice(argument):
            return f"slice({', '.join(map(self.text, (argument.start, argument.stop, argument.step)))})"
        if isinstance(argument, enum.Enum):
            return f"{self.named(type(argument).__name__, type(argument))}.{argument.name}"
        if isinstance(argument, Tensor):
            return self.named("tensor_constant", argument)
        if callable(argument) and not isinstance(argument, base_types):
            return self.named(_names.qualified_name(argument), argument)
        return repr(argument)


def _last_uses(nodes: Sequence[Node]) -> dict[Node, list[Node]]:
    """For each node, the nodes whose results nobody needs after it: they are let go of, as Python's own code would."""
    seen: set[Node] = set()
    result: dict[Node, list[Node]] = {node: [] for node in nodes}
    for user in reversed(nodes):
        for node in user.all_input_nodes:
            if node not in seen:
                seen.add(node)
                result[user].append(node)
    for node in nodes:
        if node.op in ("placeholder", "output"):
            result[node] = []
        elif not node.users:
            result[node].append(node)
    return result


def _attribute(base: str, path: str) -> str:
    """Code that reads an attribute by a dotted path, whose parts may be no identifiers."""
    for part in path.split("."):
        is_name = part.isidentifier() and not keyword.iskeyword(part)
        base = f"{base}.{part}" if is_name else f'getattr({base}, "{part}")'
    return base


def _reads_attribute(node: Node) -> bool:
    """Whether a call of `getattr` can be written with a dot."""
    is_name = len(node.args) == 2 and isinstance(node.args[1], str) and node.args[1].isidentifier()
    return is_name and not node.kwargs and isinstance(node.args[0], Node)


def _shape_text(node: Node) -> str:
    """What `ShapeProp` has found for a node, such as `f32[2, 3]`."""
    meta = node.meta.get("tensor_meta")
    if meta is None or not hasattr(meta, "dtype"):
        return ""
    name = str(meta.dtype).removeprefix("torch.")
    name = re.sub("^(bf|f|u|i|c)(loat|int|nt|omplex)([0-9])", r"\1\3", name).replace("_", "")
    return f"{'b8' if name == 'bool' else name}{list(meta.shape)}"
