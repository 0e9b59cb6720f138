"""Numbers about what has been compiled, under PyTorch's names."""

from __future__ import annotations

from weft._dynamo._counters import counters as counters
from weft._dynamo._marks import is_compile_supported as is_compile_supported
from weft._dynamo.testing import CompileCounterWithBackend
from weft._dynamo.testing import same as same
from weft.compiler import is_compiling as is_compiling


class CompileProfiler(CompileCounterWithBackend):
    """A backend that counts what it gets, and reports; also a context manager."""

    def __init__(self) -> None:
        super().__init__("eager")
        self._before = dict(counters["graph_break"])

    def __enter__(self) -> CompileProfiler:
        self._before = dict(counters["graph_break"])
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing has to be undone."""

    def get_metrics(self) -> dict[str, int]:
        """The reasons for which graphs have ended since it was made, and how often."""
        return {why: n - self._before.get(why, 0) for why, n in counters["graph_break"].items()}

    def report(self) -> str:
        """The number of graphs and calls, and why graphs ended, as a text."""
        lines = [f"Torchdynamo Profiler Report: {self.frame_count} graphs with {self.op_count} calls"]
        lines += [f"  {count} times: {why}" for why, count in self.get_metrics().items() if count]
        return "\n".join(lines) + "\n"
