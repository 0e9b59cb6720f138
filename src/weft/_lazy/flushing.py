"""Flushing: the stages by which pending values are computed.

A small graph is computed by the extension, where it is there. Otherwise:

1. `take_living` empties the thread's list; what nobody refers to is dropped (`liveness`).
2. A few small applications are computed one by one (`running`).
3. The rest is cut: where a long list repeats itself, and by devices.
4. `plan` numbers a graph, and chooses and claims its outputs.
5. `run` runs its program, and stores the results.
6. `report` raises failed checks that no value can raise any more (`checks`).

Whatever a stage raises, values that have not been computed are put back into the list.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager

from weft._base import config
from weft._base.device import META
from weft._base.flight import Flight
from weft._base.interrupts import uninterrupted
from weft._base.pending import LEAST_LIMIT, Pending
from weft._base.state import ambient
from weft._base.timeline import Listeners, Phase, spanned
from weft._lazy.checks import note_computed, report
from weft._lazy.chunks import chunk_sizes
from weft._lazy.ledger import ledgers, note_alive
from weft._lazy.liveness import put_back, take_living
from weft._lazy.lost import revive
from weft._lazy.native import native
from weft._lazy.plan import Busy, plan
from weft._lazy.running import computed_at_once, leave_without_data, run
from weft._lazy.runtime import tier_of
from weft._lazy.value import PENDING, Value

_LONG = 256  # operators from which on it is worth looking for repetition, and planning is Python's
_MANY = 32  # repetitions that no network's layers reach in half of a step
_MOST_CHECKS = 64  # that a thread leaves unread


def flush(pending: Pending, wanted: tuple[Value, ...] = ()) -> None:
    """Compute all living values of a list, and `wanted`, which any thread may have recorded."""
    if Listeners.all:
        _flush_as_span(pending, wanted)
    else:
        _flush_all(pending, wanted)


def _flush_all(pending: Pending, wanted: tuple[Value, ...]) -> None:
    if pending.limit != LEAST_LIMIT:  # something is shown, or the list was long
        pending.show()
        pending.set_room(LEAST_LIMIT)
    if _is_flushed_natively(pending) and not any(value.content is PENDING for value in wanted):
        return
    values: list[Value] = []
    try:
        take_living(pending, values)
        if computed_at_once(values):
            values.clear()
            _report(pending)
            if not any(value.content is PENDING for value in wanted):
                return
        if len(values) > _LONG:
            _compute_in_chunks(values, pending, _MANY)
        _compute_by_device(values, pending, wanted)
    except BaseException:
        put_back(values, pending)
        raise


def _is_flushed_natively(pending: Pending) -> bool:
    """Let the extension compute a small graph, if nobody looks on; False if it has left the list as it was."""
    if native is None or not native.flush(pending):
        return False
    _report(pending)
    return True


def _report(pending: Pending) -> None:
    note_computed(pending)
    report(pending, _MOST_CHECKS)


if native is not None:
    native.bind(least_limit=LEAST_LIMIT, longest=_LONG, Listeners=Listeners, Flight=Flight, ledgers=ledgers)
    native.bind(tier_of=tier_of, report=_report)

_flush_as_span = spanned(Phase.PLANNING, "flush")(_flush_all)


def _flush_for(value: Value) -> None:
    """Compute a pending value that is read, with all that this thread has recorded."""
    flush(ambient().pending, (value,))


PENDING.compute = _flush_for


def flush_pending() -> None:
    """Compute what this thread has recorded, as a program of its own; does nothing in a capture or in `keeping`."""
    state = ambient()
    pending = state.pending
    if state.capture is None and not pending.kept:
        if pending or pending.checks:
            flush(pending)
        while pending.when_computed:
            pending.when_computed.pop(0)()


def end_optimizer_step() -> None:
    """`flush_pending`, unless the program says itself where its steps end."""
    if not ambient().pending.marked:
        flush_pending()


@contextmanager
def keeping() -> Generator[None]:
    """Do not compute what is recorded in the block, until `flush_pending` is called or a value is needed."""
    pending = ambient().pending
    before, pending.kept = pending.kept, True
    try:
        yield
    finally:
        pending.kept = before


def at_limit(pending: Pending) -> None:
    """Called when a list is longer than its limit: show what somebody is to be shown, and make room if it is full.

    That is to drop dead values, and to compute all if too many are alive.
    """
    pending.show()
    if len(pending) <= pending.room:
        return
    values: list[Value] = []
    try:
        take_living(pending, values)
        if len(values) < config.NODE_CAP:
            pending.set_room(max(LEAST_LIMIT, 2 * len(values)))
        else:
            pending.set_room(config.NODE_CAP)
            _compute_in_chunks(values, pending, 2)
    finally:
        put_back(values, pending)


def _compute_in_chunks(values: list[Value], pending: Pending, least: int) -> None:
    """Compute the repeating stretch of a long list by equal programs, and leave what follows it pending.

    So an endless loop compiles one program, whatever its length and wherever the limit falls in it. The stretch must
    repeat `least` times: the layers of a network repeat, too, but are better computed by one program.
    """
    sizes = chunk_sizes([v.origin for v in values], least)
    if len(sizes) == 1 and len(values) < config.NODE_CAP:
        return
    for chunk_size in sizes:
        chunk = Pending(watched=False)
        chunk += values[:chunk_size]
        del values[:chunk_size]
        try:
            if native is None or not native.flush(chunk):
                _compute_by_device(chunk, pending, ())
        except BaseException:
            values[:0] = chunk
            raise
    _report(pending)


def _compute_by_device(values: list[Value], pending: Pending, wanted: tuple[Value, ...]) -> None:
    """Compute values by a program for each device: values of several devices never meet in one application."""
    if not _on_one_device(values):
        parts: dict[Hashable, list[Value]] = {}
        for value in values:
            parts.setdefault(value.aval.device, []).append(value)
        values.clear()
        value = None  # references are counted
        try:
            for part in parts.values():
                _compute(part, pending, ())
        finally:
            values.extend([value for part in parts.values() for value in part])  # what a signal has left
    _compute(values, pending, wanted)


def _on_one_device(values: list[Value]) -> bool:
    if values:
        first = values[0].aval.device
        for value in values:
            if value.aval.device is not first:
                return False
    return True


def _compute(values: list[Value], pending: Pending, wanted: tuple[Value, ...]) -> None:
    """Compute values of one device, and `wanted`."""
    if values and values[0].aval.device is META:
        leave_without_data(values)
        values.clear()
    if wanted and wanted[0].aval.device is META:
        leave_without_data(wanted)
        wanted = ()
    while (wait := _plan_and_run(values, wanted)) is not None:
        wait()
    _report(pending)


def _plan_and_run(values: list[Value], wanted: tuple[Value, ...]) -> Callable[[], None] | None:
    """Plan and run one program; returns what waits for an input that has no array yet, if there is one.

    From the claim of the outputs until they have their arrays, nothing else may happen. An exception in between would
    leave values that are claimed for ever, or parameters whose buffers XLA has overwritten. So signals wait, but where
    a user's function runs, and between the steps of what takes long.
    """
    with uninterrupted:
        try:
            batch = plan(values, wanted)
        except Busy as busy:
            return busy.wait  # not the exception, whose frames refer to this one
        if batch is None:
            return None
        target, operators = batch.outputs[0].aval.device, len(batch.graph.steps)
        try:
            run(batch)
        except Exception:  # what cannot be computed is tried again only where it is needed
            if not revive(batch.graph):
                raise
            return _plan_and_run([value for value in batch.graph.nodes if value.is_pending], wanted)
        except BaseException:  # a signal
            values.extend([value for value in batch.graph.nodes if value.is_pending])
            raise
        if ledgers:
            batch = None  # and with it what the program has overwritten
            note_alive(target, operators)
    return None
