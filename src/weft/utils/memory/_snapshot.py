"""PyTorch's snapshots: what is in memory, and the lines that have made it."""

from __future__ import annotations

import os
import pickle
from typing import Any

from weft._base.device import DeviceLike
from weft._base.files import write_output
from weft._base.types import Json
from weft._lazy.ledger import ledger_of
from weft._lazy.sites import note_from_now_on
from weft.errors import ValueRangeError
from weft.utils.memory._figures import target_of
from weft.utils.memory._holders import Allocation, allocations

_ALIGNMENT = 512  # of the addresses in snapshots, which only tell arrays apart


def record_history(enabled: bool = True, *, device: DeviceLike | None = None) -> None:
    """Note from now on which lines make values, and the memory after each program; or stop.

    It holds for this thread and for those that start afterwards. A recording then takes some microseconds more. Values
    that are there already have no lines.
    """
    ledger_of(target_of(device))
    note_from_now_on(enabled)


def _record_memory_history(
    enabled: str | bool | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = 0,
    device: DeviceLike | None = None,
    clear_history: bool = False,
    **options: object,
) -> None:
    """PyTorch's name of `record_history`; None or False stops it. Only the program's own line is noted of a stack."""
    del context, stacks, max_entries, options
    if enabled not in (None, False, True, "state", "all"):
        raise ValueRangeError(f"expected enabled to be None, 'state' or 'all', but got {enabled!r}")
    record_history(bool(enabled), device=device)
    if clear_history:
        ledger_of(target_of(device)).runs.clear()


def memory_snapshot(
    mempool_id: object = None, include_traces: bool = True, *, device: DeviceLike | None = None
) -> list[dict[str, Json]]:
    """The arrays that are alive, each as a segment with one block, in PyTorch's form.

    Beside PyTorch's keys, blocks have the "type", and what keeps them, as "kind" and "name" of an `Allocation`.
    Addresses only tell arrays apart: XLA does not say where they are.
    """
    del mempool_id, include_traces
    target = target_of(device)
    address, segments = 0, list[dict[str, Any]]()
    for one in allocations(target):
        segments.append(_segment(one, address, target.index or 0))
        address += -(-max(one.nbytes, 1) // _ALIGNMENT) * _ALIGNMENT
    return segments


def _segment(one: Allocation, address: int, device: int) -> dict[str, Json]:
    file, _, line = one.site.rpartition(":")
    frames = [{"filename": file, "line": int(line), "name": one.operator}] if line.isdigit() else []
    block = {
        "size": one.nbytes,
        "requested_size": one.nbytes,
        "address": address,
        "state": "active_allocated",
        "frames": frames,
        "type": one.type,
        "kind": one.kind,
        "name": one.name,
    }
    return {
        "device": device,
        "address": address,
        "total_size": one.nbytes,
        "allocated_size": one.nbytes,
        "active_size": one.nbytes,
        "requested_size": one.nbytes,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": frames,
        "blocks": [block],
    }


def _snapshot(device: DeviceLike | None = None, augment_with_fx_traces: bool = False) -> dict[str, Json]:
    """`memory_snapshot` in the form of PyTorch's files, without a history of single allocations."""
    del augment_with_fx_traces
    count = (target_of(device).index or 0) + 1
    return {
        "segments": memory_snapshot(device=device),
        "device_traces": [[] for _ in range(count)],
        "allocator_settings": {},
        "external_annotations": [],
    }


def _dump_snapshot(
    filename: str | os.PathLike[str] = "dump_snapshot.pickle", augment_with_fx_traces: bool = False
) -> None:
    """Write `_snapshot` to a file, which pytorch.org/memory_viz shows; `write_memory_page` writes a page instead."""
    write_output(filename, pickle.dumps(_snapshot(augment_with_fx_traces=augment_with_fx_traces)))
