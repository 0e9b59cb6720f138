"""Modules that run graphs."""

# Graphs, their nodes and what works on them know each other, by names of PyTorch's.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Mapping
from pathlib import Path
from textwrap import indent
from typing import Any, Self, cast

from weft._base.guards import is_a
from weft._base.types import Arg, AttributeValue, SavedState
from weft.errors import OutOfRangeError, PreconditionError
from weft.fx._paths import assign_at, attribute_at
from weft.fx._source import function_from, import_block, imported
from weft.fx._tracer import PH, Tracer
from weft.fx.graph import Graph, PythonCode, PyTreeCodeGen
from weft.nn._conv import Conv1d, Conv2d, Conv3d
from weft.nn._linear import Linear
from weft.nn._module import Module
from weft.nn._norm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from weft.serialization import save
from weft.utils._pytree import TreeSpec

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
USER_PRESERVED_ATTRIBUTES = _USER_PRESERVED_ATTRIBUTES_KEY  # for other packages
_MADE_BY_REPR = (Linear, Conv1d, Conv2d, Conv3d, BatchNorm1d, BatchNorm2d, BatchNorm3d)


class GraphModule(Module):
    """A module that runs a graph: its `forward` is Python code that is generated from it.

    `root` is a module that has what the graph refers to (`call_module`, `get_attr`), or a dict from paths to such
    objects; only these are taken over, and they are shared. After changes of the graph call `recompile`.
    Raises `RuntimeError` if a dict lacks an object, `AttributeError` if a module does.
    """

    _is_generated = False
    _graph: Graph
    _code: str

    def __new__(cls, *args: Arg, **kwargs: Arg) -> Self:
        del args, kwargs
        base = next(kind for kind in cls.__mro__ if not kind.__dict__.get("_is_generated"))
        own = type("GraphModuleImpl", (base,), {"_is_generated": True, "__module__": base.__module__})
        return cast("Any", object).__new__(own)  # a class of its own, whose `forward` is that of its graph

    def __init__(
        self, root: Module | Mapping[str, AttributeValue], graph: Graph, class_name: str = "GraphModule"
    ) -> None:
        super().__init__()
        type(self).__name__ = type(self).__qualname__ = class_name
        self.meta: dict[str, Arg] = {}
        if isinstance(root, Module):
            self.training = root.training
            self._take_from(root, graph)
        elif isinstance(root, dict):
            self._take_from_dict(root, graph)
        else:
            raise OutOfRangeError(f"Unsupported type {root} passed for root: it must be a module or a dict")
        self.graph = graph

    def _take_from(self, root: Module, graph: Graph) -> None:
        self.meta.update(getattr(root, "meta", {}) if isinstance(root, GraphModule) else {})
        for name in self.meta.get(USER_PRESERVED_ATTRIBUTES, ()):
            setattr(self, name, self.meta[USER_PRESERVED_ATTRIBUTES][name])
        for node in graph.nodes:
            if node.op in ("get_attr", "call_module"):
                _copy_attr(root, self, node.target)

    def _take_from_dict(self, root: Mapping[str, AttributeValue], graph: Graph) -> None:
        targets: dict[str, None] = {}
        for node in graph.nodes:
            if node.op in ("get_attr", "call_module"):
                if node.target not in root:
                    raise OutOfRangeError(
                        f"Node {node} referenced target {node.target} but that target was not provided in ``root``!"
                    )
                targets[node.target] = None
        for target in sorted(targets, key=lambda path: path.count(".")):
            assign_at(self, target, root[target])

    # --- the graph and its code -------------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """The graph. Assign another one to run that."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not is_a(g, Graph):
            raise PreconditionError(f"GraphModule.graph must be a Graph: Expected a Graph instance, but got {type(g)}")
        self._graph = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The source of `forward`. It runs where `torch` is this package, as after `import weft as torch`."""
        return self._code

    def recompile(self) -> PythonCode:
        """Generate the code of the graph again. To be called after changes of the graph, which do not do so."""
        codegen = self._graph._codegen
        if isinstance(codegen, PyTreeCodeGen):
            self._in_spec, self._out_spec = codegen.pytree_info.in_spec, codegen.pytree_info.out_spec
        code = self._graph.python_code("self")
        self._code = code.src
        cast("Any", type(self)).forward = function_from(code.src, code.globals, self._graph._origin)
        return code

    def print_readable(
        self,
        print_output: bool = True,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
    ) -> str:
        """The code as that of a class, with those of graph modules within; comments say where nodes come from.

        It is printed unless `print_output` is False. The other options are accepted and change nothing.
        """
        del include_stride, include_device, colored
        source = self._graph.python_code("self", verbose=True).src.strip("\n ")
        body = indent(source, "    ")
        text = f"class {type(self).__name__}(torch.nn.Module):\n{body}\n"
        # PyTorch prints classes within classes.
        for child in self.children():
            if isinstance(child, GraphModule):
                below = child.print_readable(print_output=False)
                text += f"\n{indent(below, '    ')}"
        if print_output:
            print(text)
        return text

    def __str__(self) -> str:
        hint = "# To see more debug info, please use `graph_module.print_readable()`"
        return f"{super().__repr__()}\n{self._code}\n{hint}"

    # --- submodules -------------------------------------------------------------------------------------------

    def add_submodule(self, target: str, m: Module) -> bool:
        """Put a module at a dotted path, with empty modules above it; False if there is something else in its way."""
        *above, name = target.split(".")
        parent: AttributeValue = self
        for part in above:
            if not hasattr(parent, part):
                setattr(parent, part, Module())
            parent = getattr(parent, part)
            if not isinstance(parent, Module):
                return False
        setattr(parent, name, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Remove the module at a dotted path; False if there is none. Nodes that call it stay, and fail."""
        path, _, name = target.rpartition(".")
        try:
            parent = self.get_submodule(path)
        except AttributeError:
            return False
        if not isinstance(getattr(parent, name, None), Module):
            return False
        delattr(parent, name)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Remove the modules that no node calls or reads, and that hold nothing that one does."""
        used: set[str] = set()
        for node in self._graph.nodes:
            if node.op not in ("call_module", "get_attr"):
                continue
            parts = node.target.split(".")
            used.update(itertools.accumulate(parts, lambda path, part: f"{path}.{part}"))
            if node.op == "call_module":
                below = self.get_submodule(node.target).named_modules(remove_duplicate=False)
                used.update([f"{node.target}.{path}" for path, _ in below if path])
        for path, _ in list(self.named_modules(remove_duplicate=False)):
            if path and path not in used:
                self.delete_submodule(path)

    # --- copies and files -------------------------------------------------------------------------------------

    def _state(self) -> SavedState:
        return {name: value for name, value in self.__dict__.items() if name != "_graph"}

    def _restore(self, name: str, state: SavedState, graph: Graph) -> Self:
        self.__dict__.update(state)
        type(self).__name__ = type(self).__qualname__ = name
        self.graph = graph
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> GraphModule:
        new = memo[id(self)] = GraphModule.__new__(type(self))  # known before its parts, which may refer to it
        return new._restore(type(self).__name__, copy.deepcopy(self._state(), memo), copy.deepcopy(self._graph, memo))

    def __copy__(self) -> GraphModule:
        new = GraphModule.__new__(type(self))._restore(type(self).__name__, self._state(), copy.deepcopy(self._graph))
        for table in ("_parameters", "_buffers", "_modules"):
            new.__dict__[table] = dict(new.__dict__[table])
        return new

    def __reduce__(self) -> tuple[object, ...]:
        """The code and its imports, as in PyTorch's files: what loads it traces the code again."""
        state = {**self._state(), "_graphmodule_cls_name": type(self).__name__}
        return reduce_graph_module, (state, import_block(self._graph.python_code("self").globals))

    def to_folder(self, folder: str | Path, module_name: str = "FxModule") -> None:
        """Write a package in which `module_name` is this module: its code, and its tensors in a file.

        Linear layers, convolutions and batch normalisation are made by code, other submodules are saved whole.
        """
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        save(self.state_dict(), path / "state_dict.pt")
        lines = ["super().__init__()"]
        for name, child in self.named_children():
            lines.append(f"self.{name} = {_construction(child, name, path)}")
        for kind, tensors in (("parameter", self._parameters), ("buffer", self._buffers)):
            for name, tensor in tensors.items():
                empty = "None" if tensor is None else f"torch.empty({list(tensor.shape)}, dtype={tensor.dtype})"
                value = f"torch.nn.Parameter({empty})" if kind == "parameter" and tensor is not None else empty
                lines.append(f"self.register_{kind}({name!r}, {value})")
        lines.append('self.load_state_dict(torch.load(Path(__file__).parent / "state_dict.pt"))')
        code = self._graph.python_code("self")
        wraps, _, function = code.src.partition("def forward(")
        forward = indent(f"def forward({function}".rstrip(), "    ")
        init = indent("\n".join(lines), " " * 8)
        imports = import_block({**code.globals, "Path": Path})
        # The code names PyTorch's modules, so that both libraries' programs have it; the folder must be importable
        # without `torch`.
        imports = imports.replace("import torch\n", "import weft as torch\n").replace("from torch", "from weft")
        head = f"class {module_name}(torch.nn.Module):\n    def __init__(self):"
        source = f"{imports}\n{wraps.strip()}\n\n{head}\n{init}\n\n{forward}\n"
        (path / "module.py").write_text(source, encoding="utf-8")
        (path / "__init__.py").write_text("from .module import *\n", encoding="utf-8")


def _construction(child: Module, name: str, folder: Path) -> str:
    """Code that makes a child: by its class and what `repr` says of it, or from a file."""
    if type(child) in _MADE_BY_REPR and not isinstance(getattr(child, "padding", None), str):
        return f"torch.nn.{child!r}"
    file = f"{name}.pt"
    save(child, folder / file)
    warnings.warn(
        f"the submodule {name} is saved whole, in {file}: no code is known that makes a {type(child).__name__}",
        stacklevel=3,
    )
    return f'torch.load(Path(__file__).parent / "{file}", weights_only=False)'


class _CodeOnlyModule(Module):
    """What a saved graph module is read into, before its code is traced."""

    def __init__(self, body: SavedState) -> None:
        super().__init__()
        self.__dict__.update(body)


class _KeepModules(Tracer):
    """Traces generated code, in which every call of a module is a node."""

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        del m, module_qualified_name
        return True


def reduce_graph_module(body: SavedState, import_block: str) -> GraphModule:
    """The module of a state with the code `_code`, whose names the statements import."""
    state = dict(body)
    forward = function_from(state.get("_code") or state.pop("code"), imported(import_block))
    name = state.pop("_graphmodule_cls_name", "GraphModule")
    holder = type(name, (_CodeOnlyModule,), {"forward": forward})(state)
    spec: TreeSpec | None = state.get("_in_spec")
    inputs = None if spec is None else spec.unflatten([PH] * spec.num_leaves)
    graph = _KeepModules().trace(holder, inputs)
    return GraphModule.__new__(GraphModule)._restore(name, holder.__dict__, graph)


def _copy_attr(from_module: Module, to_module: Module, target: str) -> None:
    """Give `to_module` the object that `from_module` has at a dotted path, with empty modules above it."""
    assign_at(to_module, target, attribute_at(from_module, target))
