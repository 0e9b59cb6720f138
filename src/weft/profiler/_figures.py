"""The figures that both interfaces of a profile have."""

from __future__ import annotations

import os
from collections.abc import Sequence

from weft.errors import ValueRangeError
from weft.profiler._collector import Collector
from weft.profiler._events import EventList, events_of
from weft.profiler._phases import Phases, phases_of


class ProfileFigures:
    """What is made of the notes of a profile, by its options."""

    record_shapes: bool
    with_stack: bool
    profile_memory: bool
    with_flops: bool

    @property
    def notes(self) -> Collector:
        """What was noted; `RuntimeError` before the profile has ended."""
        raise NotImplementedError

    def phases(self) -> Phases:
        """Seconds of what was profiled by what they went to; their sum is its time."""
        return phases_of(self.notes)

    def _cycles(self) -> Sequence[Collector]:
        """What was noted in each of the cycles that the events are of."""
        return [self.notes]

    def _events(self) -> EventList:
        """The events of all cycles."""
        return events_of(
            self._cycles(),
            shapes=self.record_shapes,
            stack=self.with_stack,
            memory=self.profile_memory,
            flops=self.with_flops,
        )

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """One entry for the events of each name; with the options, of each name and input shapes, or lines."""
        return self._events().key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Write a line for each of the operators' stacks, for flame graphs: its frames, and microseconds.

        `ValueError` without `with_stack`, or for another metric than "self_cpu_time_total" or "self_cuda_time_total".
        """
        if not self.with_stack:
            raise ValueRangeError("export_stacks() requires with_stack=True")
        self._events().export_stacks(path, metric)
