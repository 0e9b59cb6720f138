"""Backends that count and keep the graphs that they get."""

from __future__ import annotations

from typing import Any

from weft._base.types import AnyCallable
from weft._dynamo._backends import lookup_backend
from weft.fx.graph_module import GraphModule
from weft.testing import assert_close


class CompileCounter:
    """A backend that runs graphs as they are: `frame_count` are the graphs that it has got, `op_count` their calls."""

    def __init__(self) -> None:
        self.clear()

    def __call__(self, gm: GraphModule, example_inputs: Any) -> AnyCallable:
        self.frame_count += 1
        self.op_count += sum(node.op.startswith("call_") for node in gm.graph.nodes)
        return gm.forward

    def clear(self) -> None:
        """Count from zero again."""
        self.frame_count: Any = 0
        self.op_count = 0


class CompileCounterWithBackend(CompileCounter):
    """A `CompileCounter` that has a backend compile the graphs, which it keeps in `graphs`."""

    def __init__(self, backend: Any) -> None:
        super().__init__()
        self.backend = backend

    def __call__(self, gm: GraphModule, example_inputs: Any) -> AnyCallable:
        super().__call__(gm, example_inputs)
        self.graphs.append(gm)
        return lookup_backend(self.backend)(gm, example_inputs)

    def clear(self) -> None:
        """Forget the graphs, and count from zero again."""
        super().clear()
        self.graphs: list[GraphModule] = []


class EagerAndRecordGraphs:
    """A backend that runs graphs as they are, and keeps them in `graphs`."""

    def __init__(self) -> None:
        self.graphs: list[GraphModule] = []

    def __call__(self, gm: GraphModule, example_inputs: Any) -> AnyCallable:
        self.graphs.append(gm)
        return gm.forward


def same(a: Any, b: Any, cos_similarity: bool = False, tol: float = 1e-4, equal_nan: bool = False, **_: Any) -> bool:
    """Whether results are close, in all containers."""
    del cos_similarity
    try:
        assert_close(a, b, rtol=tol, atol=tol, equal_nan=equal_nan)
    except AssertionError:
        return False
    return True
