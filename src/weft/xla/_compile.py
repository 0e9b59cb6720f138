"""Regions that are a graph of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import TracebackType

from weft._base.types import AnyCallable, Arg, Result
from weft._lazy import metrics
from weft.errors import CompileError
from weft.xla._steps import mark_step


class Region:
    """A block or a function whose operators are one graph, which is computed at its end.

    `with compile(): …` and `@compile` make one.
    """

    def __init__(self, full_graph: bool, name: str, most_graphs: int | None) -> None:
        self._full_graph = full_graph
        self._name = name
        self._most = most_graphs
        self._graphs = 0
        self._executions = 0

    def __call__(self, function: AnyCallable) -> Result:
        """The function as such a region."""

        @wraps(function)
        def compiled(*args: Arg, **kwargs: Arg) -> Result:
            with self:
                return function(*args, **kwargs)

        return compiled

    def __enter__(self) -> None:
        mark_step()
        self._executions = _executions()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        executions, graphs = _executions() - self._executions, _graphs()
        if error is None and self._full_graph and executions:
            raise CompileError(
                f"{self._name}: Unexpected execution happens inside the compiled function: {executions} program(s) ran "
                "before its end, since it has read values or ended a step; read them after it, or use full_graph=False"
            )
        mark_step()
        self._graphs += _graphs() - graphs
        if error is None and self._most is not None and self._graphs > self._most:
            raise CompileError(
                f"{self._name}: {self._graphs} different graphs, but max_different_graphs={self._most}; the "
                "shapes, or the way of the program, differ between calls"
            )


def compile(
    f: Callable[..., object] | None = None,
    full_graph: bool = False,
    name: str | None = None,
    max_different_graphs: int | None = None,
) -> AnyCallable:
    """The function as one graph for each call, which is computed at its end; without a function, a context manager.

    With `full_graph`, `RuntimeError` at the end if something was computed before it, and with `max_different_graphs` if
    all calls have made more graphs.
    """
    region = Region(full_graph, name or getattr(f, "__name__", "compile"), max_different_graphs)
    return region if f is None else region(f)


def _executions() -> int:
    metric = metrics.metrics.get("ExecuteTime")
    return 0 if metric is None else metric.total


def _graphs() -> int:
    return metrics.counters.get("CreateCompileHandles", 0)
