"""A profile without steps, and what is done with it."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from weft._base.types import Json
from weft._lazy.flushing import flush_pending
from weft.errors import PreconditionError, UnsupportedCallError
from weft.profiler._chrome import chrome_events, write_trace
from weft.profiler._collector import Collector
from weft.profiler._config import Activities, ProfilerActivity, chosen_activities
from weft.profiler._events import EventList
from weft.profiler._figures import ProfileFigures
from weft.profiler._xla_trace import XlaTrace

_OPTIONS = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")


class _KinetoProfile(ProfileFigures):
    """What happens between `start` and `stop`; `profile` has steps besides. It may be started again.

    `phases()` tells what Weft did in that time, `key_averages()` which operators were recorded and computed,
    `export_chrome_trace` writes all of it. `record_shapes` adds the shapes of inputs, `profile_memory` the bytes of
    results, `with_stack` the user's lines, `with_modules` calls of modules, `with_flops` floating-point operations.
    With `acc_events`, `events()` and `key_averages()` are those of all times that it was started, instead of those of
    the last one. `execution_trace_observer` runs while the profile does.

    With other activities than `ProfilerActivity.CPU`, as by default where there is a GPU, jax's profiler runs as well,
    and its events are in the trace. `RuntimeError` if it runs already. `experimental_config` and
    `post_processing_timeout_s` are accepted and have no meaning.
    """

    def __init__(
        self,
        *,
        activities: Activities | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        del post_processing_timeout_s
        self.activities = chosen_activities(activities)
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
        self.with_stack, self.with_flops, self.with_modules = with_stack, with_flops, with_modules
        self.experimental_config, self.execution_trace_observer = experimental_config, execution_trace_observer
        self.acc_events = acc_events
        self.custom_trace_id_callback = custom_trace_id_callback
        self._trace_id: str | None = None
        self._notes: Collector | None = None  # of the current or the last trace
        self._cycles_before: list[Collector] = []  # with `acc_events`
        self._xla: XlaTrace | None = None
        self._is_tracing = False
        self._metadata: dict[str, Any] = {}

    def start(self) -> None:
        """Begin."""
        self.prepare_trace()
        self.start_trace()

    def stop(self) -> None:
        """End; `AssertionError` before `start`."""
        self.stop_trace()

    def prepare_trace(self) -> None:
        """Nothing: there is nothing to be prepared for `start_trace`."""

    def start_trace(self) -> None:
        """Begin a trace."""
        flush_pending()  # what was recorded before
        if self.activities - {ProfilerActivity.CPU}:
            self._xla = self._xla or XlaTrace()
            self._xla.start()
        if self.acc_events and self._notes is not None:
            self._cycles_before.append(self._notes)
        self._trace_id = (self.custom_trace_id_callback or _new_trace_id)()
        self._notes = Collector(stacks=self.with_stack, modules=self.with_modules)
        self._notes.start()
        self._is_tracing = True
        if self.execution_trace_observer is not None:
            self.execution_trace_observer.start()

    def stop_trace(self) -> None:
        """End a trace, when all of it is computed; `AssertionError` if none has begun."""
        if not self._is_tracing or self._notes is None:
            raise PreconditionError("profiler.profile: it must be started before it is stopped")
        flush_pending()
        if self.execution_trace_observer is not None:
            self.execution_trace_observer.stop()
        self._notes.stop()
        self._is_tracing = False
        if self._xla is not None:
            self._xla.stop()

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[ProfilerActivity]) -> None:
        """Note nothing of the program from here on, or note it again, if `ProfilerActivity.CPU` is among `activities`.

        What jax's profiler notes of other activities goes on. `AssertionError` outside of the profile.
        """
        if not self._is_tracing or self._notes is None:
            raise PreconditionError("profiler.profile: what it notes can be toggled between its start and its end")
        if ProfilerActivity.CPU in activities:
            flush_pending()
            if enable:
                self._notes.resume()
            else:
                self._notes.pause()

    # --- the last trace -----------------------------------------------------------------------------------------

    @property
    def notes(self) -> Collector:
        """What was noted of the last trace; `AssertionError` before it has ended."""
        if self._notes is None or self._is_tracing:
            raise PreconditionError(
                "profiler.profile: there is no complete trace yet; read it in on_trace_ready or after the block"
            )
        return self._notes

    def _cycles(self) -> list[Collector]:
        return [*self._cycles_before, self.notes]

    def events(self) -> EventList:
        """The operators and blocks of time of the last trace, or with `acc_events` of all."""
        return self._events()

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the last trace as JSON for Perfetto or chrome://tracing, compressed if the path ends with `.gz`.

        Times count from its begin, which was `baseTimeNanoseconds` after the begin of 1970. A process that a launcher
        has started says which rank it is, by which tools that read the traces of all ranks tell them apart.
        """
        entries = chrome_events(self.notes)
        if self._xla is not None:
            entries += self._xla.events()
        options = {option: 1 for option in _OPTIONS if getattr(self, option)}
        base = {"trace_id": self._trace_id, "baseTimeNanoseconds": self.notes.wall_ns}
        write_trace(path, entries, base | options | _rank() | self._metadata)

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Raises `NotImplementedError`, which says what to use instead."""
        raise UnsupportedCallError(
            "export_memory_timeline: single allocations are not noted; weft.utils.memory.write_memory_page writes what "
            "is in memory and how much there was after each program"
        )

    def add_metadata(self, key: str, value: str) -> None:
        """Add an entry to the traces that are written by `export_chrome_trace`."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """The same for a value that is JSON already."""
        self._metadata[key] = json.loads(value)

    def preset_metadata_json(self, key: str, value: str) -> None:
        """The same as `add_metadata_json`, which may be called before the profile begins, too."""
        self.add_metadata_json(key, value)

    def get_trace_id(self) -> str | None:
        """What `custom_trace_id_callback` gave for the last trace, or a random name; None before the first."""
        return self._trace_id

    def set_custom_trace_id_callback(self, callback: Callable[[], str] | None) -> None:
        """Call `callback` for the name of each trace that begins from now on."""
        self.custom_trace_id_callback = callback


def _rank() -> dict[str, Json]:
    """What a trace says of the rank that has written it."""
    rank, size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    return {} if rank is None or size is None else {"distributedInfo": {"rank": int(rank), "world_size": int(size)}}


def _new_trace_id() -> str:
    return uuid.uuid4().hex.upper()
