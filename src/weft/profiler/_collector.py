"""What a profile notes while it runs: spans of the timeline, recorded operators, and when programs were complete."""

from __future__ import annotations

import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import NamedTuple

import jax

from weft._base.pending import Pending, watch
from weft._base.site import user_stack
from weft._base.state import ambient, using
from weft._base.timeline import (
    Exchange,
    Phase,
    Span,
    add_exchange_listener,
    add_listener,
    remove_exchange_listener,
    remove_listener,
    tell,
)
from weft._lazy.program import Run
from weft._lazy.runtime import is_ready
from weft._lazy.signature import Signature
from weft._lazy.value import Value
from weft._tensor.composite.create import ones
from weft.nn._hooks import register_module_forward_hook, register_module_forward_pre_hook
from weft.nn._module import Module

COMPILATION = frozenset({Phase.TRACING, Phase.LOWERING, Phase.COMPILING, Phase.LOADING})


class Operator(NamedTuple):
    """One recorded operator.

    number    of the recording
    at        when it was recorded, in nanoseconds
    stack     the user's lines, the innermost first; of an operator of a backward pass, those that began the pass
    modules   the modules whose `forward` it was recorded in, the outermost first
    """

    signature: Signature
    number: int
    thread: int
    at: int
    stack: tuple[str, ...]
    modules: tuple[str, ...]


class Computed(NamedTuple):
    """A program that is complete: nanoseconds of its begin and end, its applications and their recordings."""

    start: int
    end: int
    applications: Sequence[tuple[Signature, int]]


class Collector:
    """Notes what happens in all threads between `start` and `stop`."""

    _read_by_calls = ()  # a captured function whose modules have these hooks does not depend on what they note

    def __init__(self, *, stacks: bool = False, modules: bool = False) -> None:
        self.spans: list[Span] = []
        self.operators: list[Operator] = []
        self.computed: list[Computed] = []
        self.exchanges: list[Exchange] = []
        self.thread = 0
        self.start_ns = self.end_ns = 0
        self.wall_ns = 0  # what `time.time_ns` was at `start_ns`
        self._since_ns = 0  # when it began or was resumed
        self.recording_ns = 0  # to record one small operator while the profile runs
        self._with_stacks, self._with_modules = stacks, modules
        self._modules: list[tuple[str, int]] = []
        self._undo: list[Callable[[], object]] = []

    def start(self) -> None:
        """Begin, with a measurement of what it costs to record an operator."""
        self._undo.append(watch(self, everywhere=True))
        self.recording_ns = self._cost_of_recording()
        self._listen()
        self.thread = threading.get_ident()
        self.wall_ns, self.start_ns = time.time_ns(), perf_counter_ns()
        self._since_ns = self.start_ns

    def pause(self) -> None:
        """Note nothing until `resume`; waits for the programs that still run."""
        while self._undo:
            self._undo.pop()()

    def resume(self) -> None:
        """Go on after `pause`."""
        if not self._undo:
            self._undo.append(watch(self, everywhere=True))
            self._listen()
            self._since_ns = perf_counter_ns()

    def stop(self) -> None:
        """End, and wait for the programs that still run."""
        self.end_ns = perf_counter_ns()
        self.pause()

    def _listen(self) -> None:
        completions = _Completions(self.computed)
        jax.monitoring.register_event_duration_secs_listener(_compilation)
        self._undo.append(lambda: jax.monitoring.unregister_event_duration_listener(_compilation))
        self._undo.append(completions.stop)

        def listen(span: Span) -> None:
            if isinstance(span.work, Run):
                self._note_program(span, span.work, completions)
            self.spans.append(span._replace(start=max(span.start, self._since_ns), work=None))

        add_listener(listen)
        self._undo.append(lambda: remove_listener(listen))
        note_exchange = self.exchanges.append
        add_exchange_listener(note_exchange)
        self._undo.append(lambda: remove_exchange_listener(note_exchange))
        if self._with_modules:
            self._note_modules()

    def _note_program(self, span: Span, run: Run, completions: _Completions) -> None:
        """Note what a program has computed, or wait for its completion."""
        if not run.applications:
            return
        start = span.start
        for inner in reversed(self.spans):
            if inner.thread == span.thread:
                if inner.end < start:
                    break
                if inner.phase in COMPILATION:
                    start = inner.end
                    break
        if all(not isinstance(array, jax.Array) or is_ready(array) for array in run.results):
            self.computed.append(Computed(start, span.end, run.applications))
        else:
            completions.add(start, span.end, run)

    def all_spans(self) -> list[Span]:
        """The spans, and one for the recording of each operator, which is its `work`."""
        return [
            *self.spans,
            *[Span(Phase.RECORDING, "", o.thread, o.at - self.recording_ns, o.at, o) for o in self.operators],
        ]

    def distance(self) -> int:
        """Every operator is noted."""
        return 1

    def show(self, value: Value) -> None:
        """Note an operator, which this thread has recorded."""
        begin, thread = perf_counter_ns(), threading.get_ident()
        if value.origin is not None:
            names = tuple([name for name, _ in self._modules])
            stack = user_stack() if self._with_stacks else ()
            self.operators.append(Operator(value.origin.signature, value.time, thread, begin, stack, names))
        self.spans.append(Span(Phase.PROFILING, "note", thread, begin, perf_counter_ns()))

    def _cost_of_recording(self) -> int:
        """Nanoseconds of recording one operator, the notes of the profile not counted."""
        pending = Pending(watched=False)
        pending.begin(self)  # and no other profile
        with using(pending=pending, capture=None):
            times: list[float] = []
            for _ in range(_ROUNDS):
                self.spans.clear()
                begin = perf_counter_ns()
                _record_some()
                noted = sum(span.end - span.start for span in self.spans)
                times.append((perf_counter_ns() - begin - noted) / _OPERATORS)
        self.spans.clear()
        self.operators.clear()
        return round(min(times))

    def _note_modules(self) -> None:
        handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]
        self._undo.append(lambda: [handle.remove() for handle in handles])

    def _enter(self, module: Module, _: object) -> None:
        if ambient().capture is None:
            self._modules.append((type(module).__name__, perf_counter_ns()))

    def _leave(self, module: Module, *_: object) -> None:
        if ambient().capture is None and self._modules:  # it may have been entered before the profile began
            name, start = self._modules.pop()
            tell(Phase.BLOCK, f"nn.Module: {name}", start)


_ROUNDS, _OPERATORS = 5, 64


def _record_some() -> None:
    """Record operators that nobody needs."""
    x = ones(1)
    for _ in range(_OPERATORS):
        x + x  # pyright: ignore[reportUnusedExpression]


class _Completions:
    """A thread that notes when programs are complete.

    It holds no results, since a program may overwrite only what nobody else refers to: it looks at them, briefly.
    """

    def __init__(self, computed: list[Computed]) -> None:
        self._computed = computed
        self._programs: queue.SimpleQueue[tuple[int, int, Run] | None] = queue.SimpleQueue()
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH)  # so that the thread notes the time when it is over, not when Python lets it
        self._thread = threading.Thread(target=self._wait, name="weft profile", daemon=True)
        self._thread.start()

    def add(self, start: int, end: int, run: Run) -> None:
        """Note when a program is complete: it began at `start`, and was not complete at `end`."""
        results = [weakref.ref(array) for array in run.results if isinstance(array, jax.Array)]
        self._programs.put((start, end, run._replace(results=results)))

    def stop(self) -> None:
        """End when all programs are complete."""
        self._programs.put(None)
        self._thread.join()
        sys.setswitchinterval(self._interval)

    def _wait(self) -> None:
        before = 0
        while (program := self._programs.get()) is not None:
            start, end, run = program
            while not all(map(_is_complete, run.results)):
                time.sleep(_PAUSE)
            end = max(end, perf_counter_ns())
            self._computed.append(Computed(min(max(start, before), end), end, run.applications))
            before = end


def _is_complete(result: weakref.ref[jax.Array]) -> bool:
    """Whether a result is computed, or nobody needs it any longer."""
    array = result()
    try:
        return array is None or is_ready(array)
    except RuntimeError:  # a later program has overwritten it
        return True


_PAUSE = 1e-4  # seconds
_SWITCH = 5e-4  # seconds


_EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": Phase.TRACING,
    "/jax/core/compile/jaxpr_to_mlir_module_duration": Phase.LOWERING,
    "/jax/core/compile/backend_compile_duration": Phase.COMPILING,
    "/jax/compilation_cache/cache_retrieval_time_sec": Phase.LOADING,
}


def _compilation(event: str, duration_secs: float, **kwargs: str | int) -> None:
    """Tell of what jax says of a compilation."""
    phase = _EVENTS.get(event)
    if phase is not None:
        tell(phase, str(kwargs.get("fun_name", phase)), perf_counter_ns() - round(1e9 * duration_secs))
