"""`profile`: what a program's steps took, told apart."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Any, Self

from weft import cuda
from weft._lazy.realize import flush_pending
from weft._profile.chrome import chrome_events, write_trace
from weft._profile.collector import Collector
from weft._profile.events import EventList
from weft._profile.figures import ProfileFigures
from weft._profile.xla_trace import XlaTrace
from weft.autograd.profiler import record_function
from weft.errors import PreconditionError, SettingError, ValueRangeError


class ProfilerAction(Enum):
    """What happens in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class ProfilerActivity(Enum):
    """What a profile looks at: the program in this process, and with any other activity what XLA does."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """A function from the number of a step to what happens in it.

    After `skip_first` steps there are cycles of `wait` steps in which nothing happens, `warmup` steps, and `active`
    steps that are traced; `repeat` of them, or without end if it is 0. With `skip_first_wait`, the first cycle does not
    wait.
    """
    if min(wait, warmup, active, repeat, skip_first) < 0 or active == 0:
        raise PreconditionError("Invalid profiler schedule arguments")
    skipped = wait if skip_first_wait else 0

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise PreconditionError(f"Step must be non-negative. Got {step}.")
        if step < skip_first:
            return ProfilerAction.NONE
        cycle, at = divmod(step - skip_first + skipped, wait + warmup + active)
        if (repeat and cycle >= repeat) or at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if at < wait + warmup + active - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def _default_schedule_fn(step: int) -> ProfilerAction:
    """Every step is traced."""
    return ProfilerAction.RECORD


def kineto_available() -> bool:
    """True: there are traces."""
    return True


def supported_activities() -> set[ProfilerActivity]:
    """The program in this process, and the GPU if there is one."""
    return {ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda.is_available() else [])}


class profile(ProfileFigures):
    """A block whose steps are profiled; `step()` says where a step of the program ends.

    `schedule` says which steps, by default all. At the end of profiled steps, `on_trace_ready(self)` is called; without
    a schedule, that is at the end of the block. `phases()` tells what Weft did in that time, `key_averages()` which
    operators were recorded and computed, `export_chrome_trace` writes all of it. `record_shapes` adds the shapes of
    inputs, `profile_memory` the bytes of results, `with_stack` the user's lines, `with_modules` calls of modules,
    `with_flops` floating-point operations. With `acc_events`, `events()` and `key_averages()` are those of all cycles
    of the schedule until now, instead of those of the last one.

    With other activities than `ProfilerActivity.CPU`, as by default where there is a GPU, jax's profiler runs as well,
    and its events are in the trace. `RuntimeError` if it runs already. The other options are accepted and
    have no meaning.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        acc_events: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        del experimental_config, execution_trace_observer, custom_trace_id_callback
        del post_processing_timeout_s
        chosen = supported_activities() if activities is None else [*activities]
        if not chosen or not all(isinstance(activity, ProfilerActivity) for activity in chosen):
            raise PreconditionError(
                f"No valid profiler activities found: activities must be of ProfilerActivity, got {chosen!r}"
            )
        self.activities = set(chosen)
        if use_cuda:
            self.activities.add(ProfilerActivity.CUDA)
        self.schedule = schedule or _default_schedule_fn
        self._has_steps = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
        self.with_stack, self.with_flops, self.with_modules = with_stack, with_flops, with_modules
        self.acc_events = acc_events
        self.step_num = 0
        self.current_action = self.schedule(0)
        self._notes: Collector | None = None  # of the current or the last steps
        self._cycles_before: list[Collector] = []  # with `acc_events`
        self._xla = XlaTrace() if self.activities - {ProfilerActivity.CPU} else None
        self._is_started = self._is_tracing = False
        self._metadata: dict[str, Any] = {}
        self._step_block = record_function("")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin with step 0."""
        self._is_started = True
        self._begin_step()

    def stop(self) -> None:
        """End the last step; `AssertionError` before `start`."""
        if not self._is_started:
            raise PreconditionError("profiler.profile: it must be started before it is stopped")
        self._end_step(is_last=True)

    def step(self) -> None:
        """End a step and begin the next one."""
        ended = self.current_action
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        self._end_step(is_last=ended is ProfilerAction.RECORD_AND_SAVE)
        self._begin_step()

    def _begin_step(self) -> None:
        if self.current_action in _RECORDING and not self._is_tracing:
            flush_pending()  # what was recorded before
            if self._xla is not None:
                self._xla.start()
            if self.acc_events and self._notes is not None:
                self._cycles_before.append(self._notes)
            self._notes = Collector(stacks=self.with_stack, modules=self.with_modules)
            self._notes.start()
            self._is_tracing = True
        if self._is_tracing and self._has_steps:
            self._step_block = record_function(f"ProfilerStep#{self.step_num}")
            self._step_block.__enter__()

    def _end_step(self, *, is_last: bool) -> None:
        if not self._is_tracing or self._notes is None:
            return
        flush_pending()
        if self._has_steps:
            self._step_block.__exit__(None, None, None)
        if is_last:
            self._notes.stop()
            self._is_tracing = False
            if self._xla is not None:
                self._xla.stop()
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)

    # --- the last trace -----------------------------------------------------------------------------------------

    @property
    def notes(self) -> Collector:
        """What was noted of the last steps; `AssertionError` before they have ended."""
        if self._notes is None or self._is_tracing:
            raise PreconditionError(
                "profiler.profile: there is no complete trace yet; read it in on_trace_ready or after the block"
            )
        return self._notes

    def _cycles(self) -> list[Collector]:
        return [*self._cycles_before, self.notes]

    def events(self) -> EventList:
        """The operators and blocks of time of the last steps, or with `acc_events` of all."""
        return self._events()

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the last trace as JSON for Perfetto or chrome://tracing, compressed if the path ends with `.gz`."""
        entries = chrome_events(self.notes)
        if self._xla is not None:
            entries += self._xla.events()
        write_trace(path, entries, {"metadata": self._metadata})

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Write a line for each of the operators' stacks, for flame graphs: its frames, and microseconds.

        `ValueError` without `with_stack`, or for another metric than "self_cpu_time_total" or "self_cuda_time_total".
        """
        if not self.with_stack:
            raise ValueRangeError("export_stacks() requires with_stack=True")
        self.events().export_stacks(path, metric)

    def add_metadata(self, key: str, value: str) -> None:
        """Add an entry to the traces that are written by `export_chrome_trace`."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """The same for a value that is JSON already."""
        self._metadata[key] = json.loads(value)


_KinetoProfile = profile
"""PyTorch's base of it, which has no schedule."""


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """For `on_trace_ready`: writes each trace to this folder, where TensorBoard's plugins read it.

    That is a Chrome trace, as PyTorch's plugin reads it, and what jax's profiler has noted, for the plugin `profile`.
    `RuntimeError` if the folder cannot be made.
    """

    def write(prof: profile) -> None:
        folder = Path(dir_name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingError(f"Can't create directory: {dir_name}: {error.strerror}") from error
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        ending = ".pt.trace.json.gz" if use_gzip else ".pt.trace.json"
        prof.export_chrome_trace(folder / f"{worker}.{time.time_ns()}{ending}")
        if prof._xla is not None:
            prof._xla.copy_to(folder, worker, prof.step_num)

    return write
