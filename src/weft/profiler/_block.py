"""PyTorch's older profiler: the same notes as `weft.profiler`, in one block."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from time import perf_counter_ns
from typing import Any, Self, TypeVar

import jax

from weft._base.scopes import begin_scope
from weft._base.timeline import Exchange, Listeners, Phase, tell, tell_exchange
from weft._lazy.flushing import flush_pending
from weft.errors import ArgumentError, OptionError
from weft.futures import Future
from weft.profiler._chrome import chrome_events, write_trace
from weft.profiler._collector import Collector
from weft.profiler._event import FunctionEvent
from weft.profiler._events import EventList
from weft.profiler._figures import ProfileFigures

T = TypeVar("T")


def _profiler_enabled() -> bool:
    """Whether a profile runs, which programs ask before they begin a block."""
    return bool(Listeners.all)


class record_function(ContextDecorator):
    """A block, or a function, that has a name in profiles, for callbacks (`weft.monitor`), and in the traces of
    `jax.profiler`."""

    def __init__(self, name: str, args: str | None = None) -> None:
        if not isinstance(name, str):
            raise ArgumentError(f"record_function: name must be a string, got {type(name).__name__}")
        self.name = name
        self.args = args
        self._blocks: list[tuple[Any, int, list[Callable[[], None]]]] = []
        self._ends_with_future = False

    def __enter__(self) -> Self:
        block = jax.profiler.TraceAnnotation(self.name)
        block.__enter__()
        self._blocks.append((block, perf_counter_ns(), begin_scope(self.name)))
        return self

    def __exit__(self, *error: Any) -> None:
        block, start, ends = self._blocks.pop()
        for end in ends:
            end()
        block.__exit__(*error)
        if Listeners.all and not self._ends_with_future:
            tell(Phase.BLOCK, self.name, start)

    def _call_end_callbacks_on_future(self, fut: Future[T]) -> Future[T]:
        """End the block in profiles when a future is done; returns a future of the same value. `RuntimeError` if it was
        called before."""
        if self._ends_with_future or not self._blocks:
            raise OptionError("_call_end_callbacks_on_future can only be called once, within the block.")
        self._ends_with_future = True
        exchange = tell_exchange(Exchange(self.name, start=self._blocks[-1][1]))

        def ended(done: Future[T]) -> T:
            exchange.end = perf_counter_ns()
            return done.value()

        return fut.then(ended)


class profile(ProfileFigures):
    """A block whose time is told apart: `key_averages().table()` by operator, `phases()` by what Weft did.

    `RuntimeError` if its figures are asked for before the end of the block. `use_cuda` and `use_device` are accepted:
    what programs take on any device is noted. The block ends when everything in it is computed. With `enabled=False`,
    nothing is noted, and the `with` statement gives None.
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        **options: Any,
    ) -> None:
        del use_cuda, use_device, options
        self.enabled = enabled
        self.record_shapes, self.with_flops, self.profile_memory = record_shapes, with_flops, profile_memory
        self.with_stack, self.with_modules = with_stack, with_modules
        self._notes: Collector | None = None
        self._is_running = False

    def __enter__(self) -> Self | None:
        if not self.enabled:
            return None
        if self._is_running or self._notes is not None:
            raise OptionError("autograd.profiler.profile: a profile can be entered once; make another one")
        flush_pending()  # what was recorded before
        self._notes = Collector(stacks=self.with_stack, modules=self.with_modules)
        self._is_running = True
        self._notes.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.enabled and self._notes is not None:
            flush_pending()
            self._is_running = False
            self._notes.stop()

    @property
    def notes(self) -> Collector:
        """What was noted."""
        if self._notes is None or self._is_running:
            raise OptionError("autograd.profiler.profile: there are no figures yet; read them after the block")
        return self._notes

    @property
    def function_events(self) -> EventList:
        """All events, in order of their start."""
        return self._events()

    events = function_events

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events, without counting any twice."""
        return self.function_events.self_cpu_time_total

    def total_average(self) -> FunctionEvent:
        """The sum of all events."""
        return self.function_events.total_average()

    def table(self, sort_by: str | None = None, row_limit: int = 100, **options: Any) -> str:
        """The events as text."""
        return self.function_events.table(sort_by, row_limit, **options)

    def export_chrome_trace(self, path: str) -> None:
        """Write a trace as JSON for Perfetto or chrome://tracing, compressed if the path ends with `.gz`."""
        write_trace(path, chrome_events(self.notes), {})

    def __str__(self) -> str:
        return "<unfinished profile>" if self._notes is None or self._is_running else self.table()

    __repr__ = __str__


class _Ranges:
    """A block in which programs and the blocks of `record_function` are named in the device's own tools.

    They always are: XLA gives every operator of a program its name, and jax marks the blocks.
    """

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled, self.record_shapes = enabled, record_shapes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class emit_nvtx(_Ranges):
    """A block that is seen in NVIDIA's Nsight Systems: its programs, and the blocks of `record_function`."""


class emit_itt(_Ranges):
    """A block that is seen in Intel's VTune: its programs, and the blocks of `record_function`."""
