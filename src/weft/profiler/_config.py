"""What a profile is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from weft import cuda
from weft.errors import PreconditionError, ValueRangeError


class ProfilerActivity(Enum):
    """What a profile looks at: the program in this process, and with any other activity what XLA does."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


Activities = Iterable[ProfilerActivity | Mapping[ProfilerActivity, Sequence[str]]]
"""Activities, alone or with kinds of events, which are accepted and have no meaning."""


def kineto_available() -> bool:
    """True: there are traces."""
    return True


def supported_activities() -> set[ProfilerActivity]:
    """The program in this process, and the GPU if there is one."""
    return {ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda.is_available() else [])}


def chosen_activities(activities: Activities | None) -> set[ProfilerActivity]:
    """The activities of a profile, by default all that there are. `ValueError` if one is named twice."""
    if activities is None:
        return supported_activities()
    entries = [*activities]
    chosen = [activity for entry in entries for activity in (entry if isinstance(entry, Mapping) else (entry,))]
    if not chosen or not all(isinstance(activity, ProfilerActivity) for activity in chosen):
        raise PreconditionError(
            f"No valid profiler activities found: activities must be of ProfilerActivity, got {entries!r}"
        )
    if any(isinstance(entry, Mapping) for entry in entries) and len(set(chosen)) < len(chosen):
        raise ValueRangeError(f"profiler.profile: each activity may be named once, got {entries!r}")
    return set(chosen)


@dataclass
class _ExperimentalConfig:
    """PyTorch's settings for its own collection of events. They are accepted and have no meaning here."""

    profiler_metrics: Sequence[str] = field(default_factory=list[str])
    profiler_measure_per_kernel: bool = False
    verbose: bool = False
    performance_events: Sequence[str] = field(default_factory=list[str])
    enable_cuda_sync_events: bool = False
    adjust_profiler_step: bool = False
    disable_external_correlation: bool = False
    profile_all_threads: bool = False
    capture_overload_names: bool = False
    record_python_gc_info: bool = False
    expose_kineto_event_metadata: bool = False
    custom_profiler_config: str = ""
    adjust_timestamps: bool = False
    trace_only: bool = False
