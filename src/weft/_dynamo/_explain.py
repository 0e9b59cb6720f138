"""`explain`: which graphs a function becomes, and why it is not one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from weft._base.types import AnyCallable, Arg
from weft._dynamo._compiled import BackendCompiled
from weft._dynamo._recorder import GraphBreak
from weft.fx._names import target_text
from weft.fx.graph_module import GraphModule


@dataclass
class ExplainOutput:
    """What `explain` has found. It prints as a report.

    graphs             the graphs, in order
    graph_count        how many
    graph_break_count  how often one ended before the function did
    break_reasons      why, with `reason` and `user_stack`
    op_count           how many calls there are in all of them
    ops_per_graph      what they call
    """

    graphs: list[GraphModule]
    graph_count: int
    graph_break_count: int
    break_reasons: list[GraphBreak]
    op_count: int
    ops_per_graph: list[list[Any]] | None = None
    out_guards: list[Any] | None = None
    compile_times: str | None = None

    def __str__(self) -> str:
        lines = [f"Graph Count: {self.graph_count}", f"Graph Break Count: {self.graph_break_count}"]
        lines += [f"Op Count: {self.op_count}", "Break Reasons:"]
        for number, one in enumerate(self.break_reasons, 1):
            lines += [f"  Break Reason {number}:", f"    Reason: {one.reason}", "    User Stack:"]
            lines += [f"      {frame}" for frame in one.user_stack]
        for number, calls in enumerate(self.ops_per_graph or (), 1):
            lines += ["Ops per Graph:"] * (number == 1)
            lines += [f"  Ops {number}:", *[f"    {target_text(target)}" for target in calls]]
        return "\n".join(lines)


@dataclass
class _Collector:
    graphs: list[GraphModule] = field(default_factory=list[GraphModule])

    def __call__(self, gm: GraphModule, example_inputs: object) -> AnyCallable:
        self.graphs.append(gm)
        return gm.forward


def explain(f: AnyCallable, *extra_args: Arg, **extra_kwargs: Arg) -> Any:
    """`explain(function)(*args)` calls a function and returns an `ExplainOutput` of what a backend would get."""

    def inner(*args: Arg, **kwargs: Arg) -> ExplainOutput:
        collector = _Collector()
        compiled = BackendCompiled(getattr(f, "_orig_mod", f), False, collector)
        compiled(*args, **kwargs)
        calls = [[n.target for n in gm.graph.nodes if n.op.startswith("call_")] for gm in collector.graphs]
        count = len(collector.graphs)
        breaks = compiled.breaks
        return ExplainOutput(collector.graphs, count, max(count - 1, 0), breaks, sum(map(len, calls)), calls, [])

    return inner(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else inner
