"""Flushing: computing pending values, and reading them.

A pending value to which only the list of pending values refers is dead. `plan` chooses the outputs of a program.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from sys import getrefcount
from typing import Any

import jax
import numpy as np

from weft._base import config
from weft._base.collector import collector_paused
from weft._base.device import CPU, META
from weft._base.interrupts import uninterrupted
from weft._base.pending import LEAST_LIMIT, Pending
from weft._base.state import ambient
from weft._base.timeline import Listeners, Phase, spanned, tell
from weft._lazy import metrics, refcounts
from weft._lazy.callbacks import failure_behind
from weft._lazy.chunks import chunk_sizes
from weft._lazy.interpreted import LEAST_PROGRAM, costs_of, evaluated
from weft._lazy.interpreter import quiet
from weft._lazy.ledger import ledgers, note_alive, note_run
from weft._lazy.lost import error_for, is_lost, revive
from weft._lazy.plan import Batch, Busy, Ticket, plan
from weft._lazy.program import Run, execute, place
from weft._lazy.runtime import is_exhaustion, raise_if_exhausted, telling_of_memory, tier_of
from weft._lazy.value import NO_DATA, Absent, Check, Unconfirmed, Value, is_taped

_LONG = 256  # operators from which on it is worth looking for repetition
_FEW = 16  # operators that may be quicker computed than planned
_MANY = 32  # repetitions that no network's layers reach in half of a step
_MOST_CHECKS = 64  # that a thread leaves unread

_planning = threading.RLock()  # a finalizer may compute while this thread interprets a few operators
_STAND_INS = (Ticket, Absent, Unconfirmed)


# --- entry points ---------------------------------------------------------------------------------------------


def array_of(value: Value) -> Any:
    """The jax array of a value, computed now if necessary. Execution is asynchronous; this does not wait."""
    if type(raw_array(value)) is np.ndarray:
        place(value)
    return value.array


def raw_array(value: Value) -> Any:
    """A value's array as from `array_of`, or its NumPy array if it has not been needed on its device yet.

    Waits for the checks on which the value depends, and raises their failures.
    """
    array = value.array
    while array is None or type(array) in _STAND_INS:
        if array is None:
            flush(ambient().pending, (value,))
        elif type(array) is not Unconfirmed:
            _wait_for_array(value, ambient().pending)
        else:
            for doubt in array.doubts:
                confirm(doubt.check)
            value.array = array.array
        array = value.array
    return array


def host_array(value: Value) -> np.ndarray[Any, Any]:
    """A value's elements as a NumPy array."""
    array = raw_array(value)
    return _waited_for(value, array) if Listeners.all else _on_host(value, array)


def _on_host(value: Value, array: Any) -> np.ndarray[Any, Any]:
    """An array on the host, once it is computed."""
    if value.aval.device is CPU:
        try:
            return np.asarray(array)
        except (RuntimeError, MemoryError) as error:
            raise_if_exhausted(error, CPU)
            if is_lost(array):
                raise error_for(value) from None
            raise
    with metrics.from_device(array), telling_of_memory(value.aval.device):
        return np.asarray(array)


_waited_for = spanned(Phase.WAITING, "for a value")(_on_host)


def confirm(check: Check, *, at_the_call: bool = False) -> None:
    """Wait for a check; raise its failure."""
    _wait_for(check)
    if check.failure is not None:
        raise check.error(at_the_call=at_the_call)


@spanned(Phase.WAITING, "for a check")
def _wait_for(check: Check) -> None:
    """Read a check's codes, once they are computed."""
    code = check.code
    if code is not None:
        check.set_codes(np.asarray(raw_array(code)).tolist())


def report(pending: Pending, most: int = 0) -> None:
    """Raise the failures of this thread's checks that no living value can raise. At most `most` checks stay unread."""
    checks = pending.checks
    if len(checks) <= most:
        return
    pending.checks = []
    while len(checks) > most:
        check = checks.pop(0)
        if check.code is not None and check.code.array is None:  # recorded since
            pending.checks.append(check)
            continue
        _wait_for(check)
        if check.failure is None or check.reported:
            continue
        if check.doubt is None or check.doubt() is None:
            pending.checks += checks
            raise check.error()
        pending.checks.append(check)
    pending.checks += checks


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
    values: list[Value] = []
    try:
        _take(pending, values)
        try:
            computed = len(values) <= _FEW and _compute_at_once(values)
        except MemoryError:
            computed = False  # `_run` meets it again, and makes good what it breaks
        except RuntimeError:
            if not any(is_lost(x.array) for value in values for x in value.inputs):
                raise
            computed = False
        if computed:
            values.clear()
            if all(value.array is not None for value in wanted):
                return
        if len(values) > _LONG:
            _flush_in_chunks(values, pending, _MANY)
        _flush(values, pending, wanted)
    except BaseException:
        _put_back(values, pending)
        raise


_flush_as_span = spanned(Phase.PLANNING, "flush")(_flush_all)


def flush_pending() -> None:
    """Compute what this thread has recorded, as a program of its own; does nothing in a capture or in `keeping`."""
    state = ambient()
    pending = state.pending
    if state.capture is None and not pending.kept:
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
        _take(pending, values)
        if len(values) < config.NODE_CAP:
            pending.set_room(max(LEAST_LIMIT, 2 * len(values)))
        else:
            pending.set_room(config.NODE_CAP)
            _flush_in_chunks(values, pending, 2)
    finally:
        _put_back(values, pending)


def _flush_in_chunks(values: list[Value], pending: Pending, least: int) -> None:
    """Compute the repeating stretch of a long list by equal programs, and leave what follows it pending.

    So an endless loop compiles one program, whatever its length and wherever the limit falls in it. The stretch must
    repeat `least` times: the layers of a network repeat, too, but are better computed by one program.
    """
    sizes = chunk_sizes([v.origin for v in values], least)
    if len(sizes) == 1 and len(values) < config.NODE_CAP:
        return
    for chunk_size in sizes:
        chunk = values[:chunk_size]
        del values[:chunk_size]
        try:
            _flush(chunk, pending, ())
        except BaseException:
            values[:0] = chunk
            raise


def escaping(region: Pending, held: Iterable[Value] = ()) -> set[int]:
    """Ids of the pending values of a region to which anything but the region, its checks and the caller refers.

    The caller refers once to each of `held`, besides.
    """
    uses: dict[int, int] = {}
    shared: set[int] = set()
    for value in region:
        inputs = value.inputs if id(value.inputs) not in shared else ()
        shared.add(id(value.inputs))
        for x in (*inputs, *(value.extras or ())):
            uses[id(x)] = uses.get(id(x), 0) + 1
    for value in held:
        uses[id(value)] = uses.get(id(value), 0) + 1
    value = inputs = x = None  # references are counted from here on
    own = 1 + refcounts.IN_A_LOCAL  # the region
    codes = {id(check.code) for check in (*region.checks, *_checks_of(region))}
    return {id(v) for v in region if v.array is None and getrefcount(v) - uses.get(id(v), 0) > own} - codes


def _checks_of(region: Pending) -> Iterator[Check]:
    """The checks of a region's applications."""
    for value in region:
        if value.origin.signature.doubtful and value.doubt is not None:
            yield value.doubt.check


# --- flushing ---------------------------------------------------------------------------------------------------


def _take(pending: Pending, living: list[Value]) -> None:
    """Move the living values to an empty list, in order. Dead ones are dropped last to first: whole graphs fall.

    The list is the caller's, who puts back what is in it if a signal comes, here or later. Without that an endless
    loop would forget what it has recorded, and compute it as one long program once somebody reads its end.
    """
    own = refcounts.IN_A_LOCAL
    pending.moved(-len(pending))
    value = None
    try:
        while True:
            value = pending.pop()
            if value.array is None and getrefcount(value) > own:
                living.append(value)
    except IndexError:
        living.reverse()
    except BaseException:
        if value is not None and not (living and living[-1] is value):
            living.append(value)
        living.reverse()
        raise


def _put_back(values: list[Value], pending: Pending) -> None:
    """Make values, which were taken out of a list, its first ones again."""
    pending[:0] = values
    pending.moved(len(values))
    values.clear()


def _compute_at_once(values: list[Value]) -> bool:
    """Compute a few small applications one by one, which is faster than planning; False if there are others."""
    if tier_of(CPU) == "compiled":
        return False
    seconds = 0.0
    for value in values:
        origin = value.origin
        assert origin is not None, "a pending value has an origin"
        signature = origin.signature
        if origin.aval.device is not CPU or len(signature.outputs) > 1:
            return False
        if signature.doubtful and (value.doubt is None or not value.doubt.check.passed):
            return False
        costs = signature.costs or costs_of(signature)
        seconds += costs.interpreting
        if seconds > LEAST_PROGRAM:
            return False
        for x in value.inputs:
            array = x.array
            if not (type(array) is np.ndarray or x.aval.weak) and isinstance(array, jax.Array):
                np.asarray(array)  # waits for what may run code of the user's, which no lock must be held for
    if not Listeners.all:
        return _evaluate(values)
    applications = [(value.origin.signature, value.time) for value in values if value.origin is not None]
    start = time.perf_counter_ns()
    is_computed = _evaluate(values)
    tell(Phase.INTERPRETING, f"{len(values)} operators", start, Run(applications if is_computed else (), ()))
    return is_computed


def _evaluate(values: Sequence[Value]) -> bool:
    """Compute applications one by one; False if the input of one is not in memory."""
    with _planning, quiet():
        for value in values:
            if value.array is None:  # another thread may have computed it since it was taken
                value.array = evaluated(value.origin, value.inputs)  # pyright: ignore[reportArgumentType]
                if value.array is None:
                    return False
                _forget_inputs(value)
    if ledgers and values:
        note_run(0, (), values)
    return True


def _forget_inputs(value: Value) -> None:
    """Drop the inputs of a computed value, unless a backward pass may need them."""
    if not is_taped(value):
        value.inputs = ()
        value.extras = None


def _flush(values: list[Value], pending: Pending, wanted: tuple[Value, ...]) -> None:
    if not _on_one_device(values):
        _flush_by_device(values, pending)
    if values and values[0].aval.device is META:
        _leave_without_data(values)
        values.clear()
    if wanted and wanted[0].aval.device is META:
        _leave_without_data(wanted)
        wanted = ()
    while (missing := _computed(values, wanted)) is not None:
        _wait_for_array(missing, pending)
    report(pending, _MOST_CHECKS)


def _flush_by_device(values: list[Value], pending: Pending) -> None:
    """Compute values of several devices, which never meet in one application, by a program for each device."""
    parts: dict[Any, list[Value]] = {}
    for value in values:
        parts.setdefault(value.aval.device, []).append(value)
    values.clear()
    value = None  # references are counted
    try:
        for part in parts.values():
            _flush(part, pending, ())
    finally:
        values.extend([value for part in parts.values() for value in part])  # what a signal has left


def _wait_for_array(value: Value, pending: Pending) -> None:
    """Wait until a value's array is no longer missing: another flush computes it, or its owner gets it back."""
    missing = value.array
    if type(missing) is Ticket and (missing.thread == threading.get_ident() or (missing.calls_back and pending.within)):
        # The flush waits for the function that is reading here: a finalizer or a handler within it, or one that its
        # program calls. So the function computes the value for itself, and the flush will store the same again.
        value.array = None
    elif type(missing) in (Ticket, Absent):
        missing.wait()


def _computed(values: list[Value], wanted: tuple[Value, ...]) -> Value | None:
    """Plan and run one program; returns a value that has to be waited for before, since it has no array yet.

    From the claim of the outputs until they have their arrays, nothing else may happen. An exception in between would
    leave values that are claimed for ever, or parameters whose buffers XLA has overwritten. So signals wait, but where
    a user's function runs, and between the steps of what takes long.
    """
    with uninterrupted:
        try:
            with _planning, collector_paused:
                batch = plan(values, wanted)
        except Busy as busy:
            return busy.value
        if batch is not None:
            target, operators = batch.outputs[0].aval.device, len(batch.graph.steps)
            try:
                _run(batch)
            except Exception:  # what cannot be computed is tried again only where it is needed
                if not revive(batch.graph):
                    raise
                return _computed([value for value in batch.graph.nodes if value.array is None], wanted)
            except BaseException:  # a signal
                values.extend([value for value in batch.graph.nodes if value.array is None])
                raise
            if ledgers:
                batch = None  # and with it what the program has overwritten
                note_alive(target, operators)
    return None


def _leave_without_data(values: Sequence[Value]) -> None:
    """End the wait of values on the meta device, which nothing computes."""
    for value in values:
        value.array = NO_DATA
        _forget_inputs(value)


def _on_one_device(values: list[Value]) -> bool:
    if values:
        first = values[0].aval.device
        for value in values:
            if value.aval.device is not first:
                return False
    return True


def _run(batch: Batch) -> None:
    outputs, arrays = batch.outputs, batch.arrays
    batch.arrays = []
    try:
        results = execute(batch.program, batch.graph, arrays)
        if batch.program.waits:
            for result in results:
                if isinstance(result, jax.Array):
                    result.block_until_ready()
    except BaseException as error:
        for value in outputs:  # still pending, so that a later read tries again
            if value.array is batch.ticket:
                value.array = None
        if batch.program.calls_back and (failure := failure_behind(error)) is not None:
            raise failure from None
        if is_exhaustion(error):
            large = _largest(batch.graph.nodes)
            for act in _on_exhausted:
                act(large)
            raise_if_exhausted(error, batch.program.device, large)
        raise
    else:
        doubts = batch.doubts
        for value, array in zip(outputs, results, strict=True):
            value.array = Unconfirmed(array, doubts[value]) if value in doubts else array
        for value in outputs:  # only now, since what dies with the inputs may have a finalizer that reads the outputs
            _forget_inputs(value)
        if ledgers:
            note_run(batch.program.bytes_at_once, batch.graph.inputs, outputs)
    finally:
        batch.ticket.done.set()


def _largest(values: Sequence[Value]) -> list[Value]:
    """The values that are at least half as large as the largest one: most likely there was no memory for these."""
    most = max([value.aval.nbytes for value in values])
    return [value for value in values if 2 * value.aval.nbytes >= most]


# no cell: filled when the library is imported
_on_exhausted: list[Callable[[Sequence[Value]], None]] = []


def on_exhausted(act: Callable[[Sequence[Value]], None]) -> None:
    """Call `act(values)` when there is no memory for these values of a program, before the error is raised."""
    _on_exhausted.append(act)
