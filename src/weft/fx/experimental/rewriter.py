"""Tracing programs whose source is rewritten first, so that less of them depends on values."""

# Graphs, their nodes and what works on them know each other, by names of PyTorch's.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Mapping
from types import CellType, CodeType, FunctionType
from typing import Any, cast

from weft._assertions import _assert
from weft._base.own_names import is_own_module
from weft._base.types import AnyCallable, PyTree
from weft.errors import PreconditionError
from weft.fx._tracer import Tracer
from weft.fx.annotate import annotate
from weft.fx.graph import Graph
from weft.nn._module import Module

_ASSERT, _ANNOTATE = "_weft_assert", "_weft_annotate"
_FACTORY = "_weft_factory"


class AST_Rewriter(ast.NodeTransformer):
    """Rewrites the source of a function: statements `assert` become calls that can be nodes, and annotations of
    variables the types of nodes. Subclasses rewrite more by methods `visit_...`, as of `ast.NodeTransformer`.
    """

    def rewrite(self, fn: FunctionType) -> FunctionType:
        """The function with its source rewritten; without its decorators. Raises `OSError` if there is no source."""
        function: Any = inspect.unwrap(fn)
        source = textwrap.dedent("".join(inspect.getsourcelines(function)[0]))
        definition = ast.parse(source).body[0]
        if not isinstance(definition, ast.FunctionDef):
            raise PreconditionError(f"AST_Rewriter: {function.__qualname__} must be defined by `def`, got: {source}")
        definition.decorator_list = []
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        cells |= {_ASSERT: CellType(_assert), _ANNOTATE: CellType(annotate)}
        code = _code_within(self.visit(definition), cells)
        closure = tuple([cells[name] for name in code.co_freevars])
        rewritten = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
        rewritten.__kwdefaults__ = function.__kwdefaults__
        rewritten.__annotations__ = function.__annotations__
        return rewritten

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """`assert x, text` as a call of a function."""
        call = ast.Call(ast.Name(_ASSERT, ast.Load()), [node.test, node.msg or ast.Constant("")], [])
        return ast.copy_location(ast.Expr(call), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """`x: T = y` as `x = annotate(y, T)`."""
        if node.value is None:
            return node
        call = ast.Call(ast.Name(_ANNOTATE, ast.Load()), [node.value, node.annotation], [])
        return ast.copy_location(ast.Assign([node.target], call), node)


def _code_within(definition: ast.FunctionDef, names: Mapping[str, object]) -> CodeType:
    """The code of a function in which these names are those of a function around it."""
    parameters = [ast.arg(name) for name in names]
    arguments = ast.arguments(posonlyargs=[], args=parameters, kwonlyargs=[], kw_defaults=[], defaults=[])
    factory = ast.FunctionDef(_FACTORY, arguments, [definition], [])
    module = ast.fix_missing_locations(ast.Module([factory], []))
    outer = _code_in(compile(module, "<rewritten>", "exec"), _FACTORY)
    return _code_in(outer, definition.name)


def _code_in(code: CodeType, name: str) -> CodeType:
    return next(part for part in code.co_consts if getattr(part, "co_name", None) == name)


class RewritingTracer(Tracer):
    """Traces what `AST_Rewriter` makes of a function, or of the `forward` of a module and of those in it.

    Layers of this package are not rewritten.
    """

    def trace(self, root: Module | AnyCallable, concrete_args: PyTree = None) -> Graph:
        """The graph of the rewritten program; `self.root` is the rewritten module."""
        rewritten = _rewritten_module(root) if isinstance(root, Module) else AST_Rewriter().rewrite(cast("Any", root))
        return super().trace(rewritten, concrete_args)


def _rewritten_module(module: Module) -> Module:
    """A module with the same tensors whose classes, and those of the modules in it, have a rewritten `forward`."""
    kind = type(module)
    of_library = is_own_module(kind.__module__)
    children = {name: None if child is None else _rewritten_module(child) for name, child in module._modules.items()}
    if of_library and children == module._modules:
        return module
    new = copy.copy(module)
    new.__dict__["_modules"] = children
    if not of_library:
        forward = AST_Rewriter().rewrite(cast("Any", kind.forward))
        new.__class__ = type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})
    return new
