"""Drawings of graphs, made with the package pydot."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, TypeAlias

from weft._base.guards import is_dict, is_list_or_tuple
from weft._base.types import Args, Kwargs
from weft.errors import OutOfRangeError
from weft.fx._names import home_of, qualified_name, target_text
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node, argument_text
from weft.fx.passes.shape_prop import TensorMetadata
from weft.nn._module import Module
from weft.nn._parameter import Parameter

_COLORS = {
    "placeholder": '"AliceBlue"',
    "call_module": "LemonChiffon1",
    "get_attr": "LightGrey",
    "output": "PowderBlue",
}
_COLORS_BY_HASH = (
    "CadetBlue1", "Coral", "DarkOliveGreen1", "DarkSeaGreen1", "GhostWhite", "Khaki1", "LavenderBlush1",
    "LightSkyBlue", "MistyRose1", "MistyRose2", "PaleTurquoise2", "PeachPuff1", "Salmon", "Thistle1", "Thistle3",
    "Wheat1",
)  # fmt: skip
_STYLE = {"style": '"filled,rounded"', "fontcolor": "#000000"}
_MOST_PARTS = 8
"""Of longer lists only so many parts are shown."""


Dot: TypeAlias = Any
"""A drawing of `pydot`, a library that need not be installed."""


class FxGraphDrawer:
    """Draws a graph module, and the graph modules that it calls, for graphviz.

        FxGraphDrawer(traced, "resnet18").get_dot_graph().write_svg("resnet18.svg")

    `pydot` writes the text of a drawing by itself; pictures need the program `dot`. Layers are drawn with their
    parameters and buffers, unless `ignore_parameters_and_buffers`, and uses of attributes unless `ignore_getattr`.
    Arguments that are nodes are not repeated, unless `skip_node_names_in_args` is False. `parse_stack_trace` adds the
    lines of the program that `node.stack_trace` has, and `normalize_args` the names and defaults of arguments.
    Shapes are shown if `ShapeProp` has run. Raises `RuntimeError` without the package pydot.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        name: str,
        ignore_getattr: bool = False,
        ignore_parameters_and_buffers: bool = False,
        skip_node_names_in_args: bool = True,
        parse_stack_trace: bool = False,
        dot_graph_shape: str | None = None,
        normalize_args: bool = False,
    ) -> None:
        self._name = name
        self.dot_graph_shape = dot_graph_shape or "record"
        self.normalize_args = normalize_args
        self._ignore_getattr = ignore_getattr
        self._ignore_tensors = ignore_parameters_and_buffers
        self._skip_nodes = skip_node_names_in_args
        self._parse_stack_trace = parse_stack_trace
        try:
            self._pydot: Any = import_module("pydot")
        except ImportError as error:
            raise OutOfRangeError(
                "FxGraphDrawer needs the package pydot; install it with: pip install 'weft[draw]'"
            ) from error
        self._dot_graphs = {name: self._drawing(graph_module, name)}
        for node in graph_module.graph.find_nodes(op="call_module"):
            submodule = graph_module.get_submodule(node.target)
            if isinstance(submodule, GraphModule):
                own_name = f"{name}_{node.target}"
                self._dot_graphs[own_name] = self._drawing(submodule, own_name)

    def get_dot_graph(self, submod_name: str | None = None) -> Dot:
        """The drawing, a `pydot.Dot`, of the module, or of the one that it calls at a path."""
        return self.get_main_dot_graph() if submod_name is None else self.get_submod_dot_graph(submod_name)

    def get_main_dot_graph(self) -> Dot:
        """The drawing of the module."""
        return self._dot_graphs[self._name]

    def get_submod_dot_graph(self, submod_name: str) -> Dot:
        """The drawing of the module at a path."""
        return self._dot_graphs[f"{self._name}_{submod_name}"]

    def get_all_dot_graphs(self) -> dict[str, Dot]:
        """All drawings by name: that of the module, and with the path after it for each that it calls."""
        return self._dot_graphs

    # --- drawing ----------------------------------------------------------------------------------------------

    def _drawing(self, module: GraphModule, name: str) -> Dot:
        drawing = self._pydot.Dot(name, rankdir="TB")
        nodes = [node for node in module.graph.nodes if not (self._ignore_getattr and node.op == "get_attr")]
        for node in nodes:
            style = {**_STYLE, "shape": self.dot_graph_shape, "fillcolor": _color(node)}
            drawing.add_node(self._pydot.Node(node.name, label=self._label(module, node), **style))
            if node.op == "call_module" and not self._ignore_tensors:
                self._draw_tensors(drawing, node, module.get_submodule(node.target))
        for node in nodes:
            for user in node.users:
                drawing.add_edge(self._pydot.Edge(node.name, user.name))
        return drawing

    def _draw_tensors(self, drawing: Dot, node: Node, layer: Module) -> None:
        if isinstance(layer, GraphModule):
            return
        style = {**_STYLE, "shape": self.dot_graph_shape, "fillcolor": "Salmon"}
        for own, tensor in (*layer.named_parameters(), *layer.named_buffers()):
            name = f"{node.name}.{own}"
            kind = "parameter" if isinstance(tensor, Parameter) else "buffer"
            label = rf"{{{name}|op_code=get_{kind}\l{tensor.dtype}{list(tensor.shape)}\n}}"
            drawing.add_node(self._pydot.Node(name, label=label, **style))
            drawing.add_edge(self._pydot.Edge(name, node.name))

    # --- texts ------------------------------------------------------------------------------------------------

    def _label(self, module: GraphModule, node: Node) -> str:
        """The text of a node, in the language of dot's records: `|` between fields, `\\n` or `\\l` at ends of lines."""
        text = f"name=%{node.name}|op_code={node.op}\n"
        if node.op == "call_module":
            layer = module.get_submodule(node.target)
            kind = layer.__class__
            text += rf"\n{home_of(kind)}.{kind.__qualname__}\n|{_constants(layer)}\n"
        else:
            args, kwargs = self._arguments(node)
            target = node.target if isinstance(node.target, str) else qualified_name(node.target)
            text += rf"|target={_escaped(target)}\n"
            text += self._list_text("args=(", ")", [argument_text(arg, _MOST_PARTS) for arg in args])
            by_name = [f"{name}: {argument_text(arg, _MOST_PARTS)}" for name, arg in kwargs.items()]
            text += self._list_text("kwargs={", "}", by_name)
            text += rf"|num_users={len(node.users)}\n"
        text += "".join([_metadata_text(meta) for meta in _metadata(node.meta.get("tensor_meta"))])
        if self._parse_stack_trace:
            text += _line_text(node.stack_trace or "")
        return f"{{{text}}}"

    def _arguments(self, node: Node) -> tuple[Args, Kwargs]:
        pair = None
        if self.normalize_args:
            pair = node.normalized_arguments(None, normalize_to_only_use_kwargs=True)
        return (node.args, node.kwargs) if pair is None else pair

    def _list_text(self, head: str, tail: str, arguments: list[str]) -> str:
        texts = [text for text in arguments if not (self._skip_nodes and "%" in text)]
        if len(texts) <= 1:
            return _escaped(f"|{head}{texts[0]},{tail}") if texts else ""
        return _escaped(rf"|{head}\l" + r",\n".join(texts) + rf",\n{tail}\l")


def _color(node: Node) -> str:
    """The color of a node: by its kind, or of functions and methods by their name."""
    if node.op in _COLORS:
        return _COLORS[node.op]
    digest = hashlib.md5(target_text(node.target).encode(), usedforsecurity=False).hexdigest()
    return _COLORS_BY_HASH[int(digest[:8], 16) % len(_COLORS_BY_HASH)]


def _escaped(text: str) -> str:
    """A text with its braces, which otherwise group fields."""
    return text.replace("{", r"\{").replace("}", r"\}")


def _constants(layer: Module) -> str:
    """The options of a layer: the attributes that its class lists, or what `repr` shows of it."""
    names = getattr(layer, "__constants__", None)
    if names is None:
        return _escaped(layer.extra_repr())
    return _escaped(r"\n".join([f"{name}: {getattr(layer, name)}" for name in names]))


def _metadata(meta: object) -> Iterator[TensorMetadata]:
    """What `ShapeProp` has noted of the tensors in a result."""
    if isinstance(meta, TensorMetadata):
        yield meta
    elif is_dict(meta):
        yield from _metadata(list(meta.values()))
    elif is_list_or_tuple(meta):
        for part in meta:
            yield from _metadata(part)


def _metadata_text(meta: TensorMetadata) -> str:
    own = {"dtype": meta.dtype, "shape": tuple(meta.shape), "requires_grad": meta.requires_grad, "stride": meta.stride}
    return "".join([rf"|{name}={value}\n" for name, value in own.items()])


def _line_text(stack_trace: str) -> str:
    """The innermost line of a stack trace, with the last two parts of the path of its file."""
    lines = re.findall(r'^ *File "(.+)", line (\d+), in .+\n *(.+)$', stack_trace, re.MULTILINE)
    if not lines:
        return ""
    file, number, code = lines[-1]
    return rf"|file={'/'.join(file.split('/')[-2:])}:{number} {code}\n"
