"""`profile`: what a program's steps took, told apart."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Self

from weft._base.files import make_output_folder
from weft._lazy.flushing import flush_pending
from weft.errors import PreconditionError, SettingError
from weft.profiler._block import record_function
from weft.profiler._config import Activities, ProfilerActivity
from weft.profiler._config import kineto_available as kineto_available
from weft.profiler._config import supported_activities as supported_activities
from weft.profiler._execution_trace import ExecutionTraceObserver as ExecutionTraceObserver
from weft.profiler._trace import _KinetoProfile


class ProfilerAction(Enum):
    """What happens in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


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


class profile(_KinetoProfile):
    """A block whose steps are profiled; `step()` says where a step of the program ends.

    `schedule` says which steps, by default all. At the end of profiled steps, `on_trace_ready(self)` is called; without
    a schedule, that is at the end of the block. The other options and the figures are those of `_KinetoProfile`, where
    a trace is that of the profiled steps between two others: `record_shapes` adds the shapes of inputs,
    `profile_memory` the bytes of results, `with_stack` the user's lines, `with_modules` calls of modules, `with_flops`
    floating-point operations. With `acc_events`, `events()` and `key_averages()` are those of all cycles of the
    schedule until now, instead of those of the last one. `use_cuda` adds `ProfilerActivity.CUDA`.
    """

    def __init__(
        self,
        *,
        activities: Activities | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], object] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: object = None,
        execution_trace_observer: object = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        super().__init__(
            activities=activities,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            with_modules=with_modules,
            experimental_config=experimental_config,
            execution_trace_observer=execution_trace_observer,
            acc_events=acc_events,
            custom_trace_id_callback=custom_trace_id_callback,
            post_processing_timeout_s=post_processing_timeout_s,
        )
        if use_cuda:
            self.activities.add(ProfilerActivity.CUDA)
        self.schedule = schedule or _default_schedule_fn
        self._has_steps = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.current_action = self.schedule(0)
        self._is_started = False
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
            self.prepare_trace()
            self.start_trace()
        if self._is_tracing and self._has_steps:
            self._step_block = record_function(f"ProfilerStep#{self.step_num}")
            self._step_block.__enter__()

    def _end_step(self, *, is_last: bool) -> None:
        if not self._is_tracing:
            return
        flush_pending()
        if self._has_steps:
            self._step_block.__exit__(None, None, None)
        if is_last:
            self.stop_trace()
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)


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
            make_output_folder(folder)
        except OSError as error:
            raise SettingError(f"Can't create directory: {dir_name}: {error.strerror}") from error
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        ending = ".pt.trace.json.gz" if use_gzip else ".pt.trace.json"
        # The host, process and time are in the name, so that ranks of a job can write into one folder.
        prof.export_chrome_trace(folder / f"{worker}.{time.time_ns()}{ending}")
        if prof._xla is not None:
            prof._xla.copy_to(folder, worker, prof.step_num)

    return write
