"""Tracing by the names under which programs import it."""

from __future__ import annotations

from weft._base.types import AnyCallable, PyTree
from weft.fx._tracer import PH as PH
from weft.fx._tracer import PHBase as PHBase
from weft.fx._tracer import PHWithMeta as PHWithMeta
from weft.fx._tracer import ProxyableClassMeta as ProxyableClassMeta
from weft.fx._tracer import Tracer as Tracer
from weft.fx._tracer import _assert_is_none as _assert_is_none  # pyright: ignore[reportPrivateUsage]  PyTorch's name
from weft.fx._tracer import is_fx_tracing as is_fx_tracing
from weft.fx._wrapping import wrap as wrap
from weft.fx.graph_module import GraphModule
from weft.nn._module import Module


def symbolic_trace(root: Module | AnyCallable, concrete_args: PyTree = None) -> GraphModule:
    """A `GraphModule` that does what a module or function does, for any values of its inputs.

    The program runs once, on proxies. What depends on values raises `TraceError`; `concrete_args` gives arguments by
    which it may decide. Layers of `torch.nn` become single nodes.
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else getattr(root, "__name__", type(root).__name__)
    return GraphModule(tracer.root, graph, name)
