"""`profile`: traces by jax's profiler, step by step.

A trace has what XLA does, its compilations, and the blocks of `record_function`. Operators are recorded and computed
together, so there is no time for a single one.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Any, Self

import jax

from weft._lazy.realize import flush_pending
from weft.autograd._events import EventList, events_of
from weft.errors import OptionError, PreconditionError, UnsupportedCallError


class ProfilerAction(Enum):
    """What happens in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class ProfilerActivity(Enum):
    """What PyTorch's profiler looks at. Traces always have all that jax's profiler sees."""

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
    """What traces have."""
    return {ProfilerActivity.CPU, ProfilerActivity.CUDA}


class profile:
    """A block whose execution is traced; `step()` says where a step of the program ends.

    `schedule` says which steps are traced, by default all. At the end of traced steps, `on_trace_ready(self)` is
    called; without a schedule, that is at the end of the block. `with_stack` adds calls of Python functions.
    `RuntimeError` if another trace is running. The other options are accepted: shapes and memory are not traced.
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
        **options: Any,
    ) -> None:
        self.activities = set(activities) if activities else supported_activities()
        self.schedule = schedule or _default_schedule_fn
        self.on_trace_ready = on_trace_ready
        self.with_stack = with_stack
        self.step_num = 0
        self.current_action = self.schedule(0)
        self._folder: Path | None = None  # of the current or the last trace
        self._remove: Callable[[], object] = lambda: None
        self._is_tracing = False
        self._metadata: dict[str, str] = {}
        self._step_block: Any = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin with step 0."""
        self._begin_step()

    def stop(self) -> None:
        """End the last step."""
        self._end_step(is_last=True)

    def step(self) -> None:
        """End a step and begin the next one."""
        self._end_step(is_last=False)
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        self._begin_step()

    def _begin_step(self) -> None:
        if self.current_action in _RECORDING and not self._is_tracing:
            flush_pending()  # what was recorded before
            self._remove()
            self._folder = Path(tempfile.mkdtemp(prefix="weft_profile"))
            self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            options = jax.profiler.ProfileOptions()
            options.python_tracer_level = int(self.with_stack)
            try:
                jax.profiler.start_trace(str(self._folder), profiler_options=options)
            except RuntimeError as error:
                raise OptionError(f"profiler.profile: a trace cannot be started: {error}") from error
            self._is_tracing = True
        if self._is_tracing:
            self._step_block = jax.profiler.TraceAnnotation(f"ProfilerStep#{self.step_num}")
            self._step_block.__enter__()

    def _end_step(self, *, is_last: bool) -> None:
        if not self._is_tracing:
            return
        flush_pending()
        self._step_block.__exit__(None, None, None)
        if is_last or self.current_action is ProfilerAction.RECORD_AND_SAVE:
            jax.profiler.stop_trace()
            self._is_tracing = False
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)

    # --- the last trace -----------------------------------------------------------------------------------------

    def _files(self, ending: str) -> list[Path]:
        if self._folder is None or self._is_tracing:
            raise OptionError(
                "profiler.profile: there is no complete trace yet; read it in on_trace_ready or after the block"
            )
        return sorted(self._folder.rglob(f"*{ending}"))

    def _trace(self) -> dict[str, Any]:
        with gzip.open(self._files(".trace.json.gz")[0], "rt") as file:
            return json.load(file)

    def events(self) -> EventList:
        """The blocks of time of the last trace."""
        return events_of(self._trace()["traceEvents"])

    def key_averages(self, *args: Any, **kwargs: Any) -> EventList:
        """The same, one entry for each name."""
        return self.events().key_averages()

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the last trace as JSON for Perfetto or chrome://tracing, compressed if the path ends with `.gz`."""
        content = json.dumps(self._trace() | {"metadata": self._metadata}).encode()
        Path(path).write_bytes(gzip.compress(content) if os.fspath(path).endswith(".gz") else content)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Raises `NotImplementedError`, which says what to use instead."""
        raise UnsupportedCallError(
            "profile.export_stacks: traces are not kept as stacks; use with_stack=True and export_chrome_trace"
        )

    def add_metadata(self, key: str, value: str) -> None:
        """Add an entry to the traces that are written by `export_chrome_trace`."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """The same for a value that is JSON already."""
        self._metadata[key] = json.loads(value)


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """For `on_trace_ready`: writes each trace to this folder, as TensorBoard's plugin `profile` reads it."""

    def write(prof: profile) -> None:
        for file in prof._files(""):
            if file.is_file():
                name = file.name if worker_name is None else worker_name + file.name[file.name.index(".") :]
                folder = Path(dir_name, "plugins", "profile", f"{file.parent.name}_step{prof.step_num}")
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, folder / name)

    return write
