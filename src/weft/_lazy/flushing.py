"""Flushing: computing pending values, and reading them.

A pending value to which only the list of pending values refers is dead. `plan` chooses the outputs of a program.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from sys import getrefcount

import jax
import numpy as np

from weft._base import config
from weft._base.collector import collector_paused
from weft._base.device import CPU, META
from weft._base.forks import hold_over_forks
from weft._base.interrupts import uninterrupted
from weft._base.numpy_guards import ARRAY
from weft._base.pending import LEAST_LIMIT, Pending
from weft._base.state import ambient
from weft._base.timeline import Listeners, Phase, spanned, tell
from weft._base.types import AnyArray
from weft._lazy import metrics, refcounts
from weft._lazy.callbacks import failure_behind
from weft._lazy.chunks import chunk_sizes
from weft._lazy.interpreted import LEAST_PROGRAM, costs_of, evaluated
from weft._lazy.interpreter import quiet
from weft._lazy.ledger import ledgers, note_alive, note_run
from weft._lazy.lost import error_for, is_lost, revive
from weft._lazy.plan import Batch, Busy, plan
from weft._lazy.program import Run, execute, place, placed
from weft._lazy.runtime import is_exhaustion, raise_if_exhausted, telling_of_memory, tier_of
from weft._lazy.value import NO_DATA, PENDING, Doubtful, RecordedCheck, StandIn, Value, is_taped

_LONG = 256  # operators from which on it is worth looking for repetition
_FEW = 16  # operators that may be quicker computed than planned
_MANY = 32  # repetitions that no network's layers reach in half of a step
_MOST_CHECKS = 64  # that a thread leaves unread

_planning = threading.RLock()  # a finalizer may compute while this thread interprets a few operators
hold_over_forks(_planning)


# --- entry points ---------------------------------------------------------------------------------------------


def array_of(value: Value) -> AnyArray:
    """The jax array of a value, computed now if necessary. Execution is asynchronous; this does not wait."""
    array: AnyArray = value.read()
    if not isinstance(array, ARRAY):
        return array
    if isinstance(value.content, StandIn):  # of external memory, which the value goes on showing
        return placed(array, value.aval.device)
    place(value)
    return value.content


def host_array(value: Value) -> np.ndarray:
    """A value's elements as a NumPy array."""
    array = value.read()
    return _waited_for(value, array) if Listeners.all else _on_host(value, array)


def _on_host(value: Value, array: object) -> np.ndarray:
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


def report(pending: Pending, most: int = 0) -> None:
    """Raise the failures of this thread's checks that no living value can raise. At most `most` checks stay unread."""
    checks = pending.checks
    if len(checks) <= most:
        return
    pending.checks = []
    while len(checks) > most:
        check = checks.pop(0)
        if check.code is not None and check.code.is_pending:  # recorded since
            pending.checks.append(check)
            continue
        check.wait()
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
            if not any(is_lost(x.available) for value in values for x in value.inputs):
                raise
            computed = False
        if computed:
            values.clear()
            if not any(value.content is PENDING for value in wanted):
                return
        if len(values) > _LONG:
            _flush_in_chunks(values, pending, _MANY)
        _flush(values, pending, wanted)
    except BaseException:
        _put_back(values, pending)
        raise


_flush_as_span = spanned(Phase.PLANNING, "flush")(_flush_all)


def _compute(value: Value) -> None:
    """Compute a pending value that is read, with all that this thread has recorded."""
    flush(ambient().pending, (value,))


PENDING.compute = _compute


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
        for x in (*inputs, *value.extras):
            uses[id(x)] = uses.get(id(x), 0) + 1
    for value in held:
        uses[id(value)] = uses.get(id(value), 0) + 1
    value = inputs = x = None  # references are counted from here on
    own = 1 + refcounts.IN_A_LOCAL  # the region
    codes = {id(check.code) for check in (*region.checks, *_checks_of(region))}
    return {id(v) for v in region if v.is_pending and getrefcount(v) - uses.get(id(v), 0) > own} - codes


def _checks_of(region: Pending) -> Iterator[RecordedCheck]:
    """The checks of a region's applications."""
    for value in region:
        if value.origin.signature.requirement is not None and value.doubt is not None:
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
            if value.content is PENDING and getrefcount(value) > own:
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
        if signature.requirement is not None and (value.doubt is None or not value.doubt.check.passed):
            return False
        costs = signature.execution.costs or costs_of(signature)
        seconds += costs.interpreting
        if seconds > LEAST_PROGRAM:
            return False
        for x in value.inputs:
            if not isinstance(x.content, np.ndarray):  # a method's call less for most inputs
                x.at_hand()  # waits for what may run code of the user's, which no lock must be held for
    if not Listeners.all:
        return _evaluate(values)
    applications = [(value.origin.signature, value.time) for value in values if value.origin is not None]
    start = time.perf_counter_ns()
    is_computed = _evaluate(values)
    tell(Phase.INTERPRETING, f"{len(values)} operators", start, Run(applications if is_computed else (), ()))
    return is_computed


def _evaluate(values: Sequence[Value]) -> bool:
    """Compute applications one by one; False if the input of one is not in memory."""
    # The lock keeps another thread from planning the same values; it is held for microseconds (`LEAST_PROGRAM`).
    with _planning, quiet():
        for value in values:
            if value.content is PENDING:  # another thread may have computed it since it was taken
                array = evaluated(value.origin, value.inputs)  # pyright: ignore[reportArgumentType]
                if array is None:
                    return False
                value.content = array
                _forget_inputs(value)
    if ledgers and values:
        note_run(0, (), values)
    return True


def _forget_inputs(value: Value) -> None:
    """Drop the inputs of a computed value, unless a backward pass may need them."""
    if not is_taped(value):
        value.inputs = ()
        value.extras = ()


def _flush(values: list[Value], pending: Pending, wanted: tuple[Value, ...]) -> None:
    if not _on_one_device(values):
        _flush_by_device(values, pending)
    if values and values[0].aval.device is META:
        _leave_without_data(values)
        values.clear()
    if wanted and wanted[0].aval.device is META:
        _leave_without_data(wanted)
        wanted = ()
    while (wait := _computed(values, wanted)) is not None:
        wait()
    report(pending, _MOST_CHECKS)


def _flush_by_device(values: list[Value], pending: Pending) -> None:
    """Compute values of several devices, which never meet in one application, by a program for each device."""
    parts: dict[Hashable, list[Value]] = {}
    for value in values:
        parts.setdefault(value.aval.device, []).append(value)
    values.clear()
    value = None  # references are counted
    try:
        for part in parts.values():
            _flush(part, pending, ())
    finally:
        values.extend([value for part in parts.values() for value in part])  # what a signal has left


def _computed(values: list[Value], wanted: tuple[Value, ...]) -> Callable[[], None] | None:
    """Plan and run one program; returns what waits for an input that has no array yet, if there is one.

    From the claim of the outputs until they have their arrays, nothing else may happen. An exception in between would
    leave values that are claimed for ever, or parameters whose buffers XLA has overwritten. So signals wait, but where
    a user's function runs, and between the steps of what takes long.
    """
    with uninterrupted:
        try:
            with _planning, collector_paused:
                batch = plan(values, wanted)
        except Busy as busy:
            return busy.wait  # not the exception, whose frames refer to this one
        if batch is not None:
            target, operators = batch.outputs[0].aval.device, len(batch.graph.steps)
            try:
                _run(batch)
            except Exception:  # what cannot be computed is tried again only where it is needed
                if not revive(batch.graph):
                    raise
                return _computed([value for value in batch.graph.nodes if value.is_pending], wanted)
            except BaseException:  # a signal
                values.extend([value for value in batch.graph.nodes if value.is_pending])
                raise
            if ledgers:
                batch = None  # and with it what the program has overwritten
                note_alive(target, operators)
    return None


def _leave_without_data(values: Sequence[Value]) -> None:
    """End the wait of values on the meta device, which nothing computes."""
    for value in values:
        value.content = NO_DATA
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
            if value.content is batch.computing:
                value.content = PENDING
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
            value.content = Doubtful(array, doubts[value]) if value in doubts else array
        for value in outputs:  # only now, since what dies with the inputs may have a finalizer that reads the outputs
            _forget_inputs(value)
        if ledgers:
            note_run(batch.program.bytes_at_once, batch.graph.inputs, outputs)
    finally:
        batch.computing.done.set()


def _largest(values: Sequence[Value]) -> list[Value]:
    """The values that are at least half as large as the largest one: most likely there was no memory for these."""
    most = max([value.aval.nbytes for value in values])
    return [value for value in values if 2 * value.aval.nbytes >= most]


# no cell: filled when the library is imported
_on_exhausted: list[Callable[[Sequence[Value]], None]] = []


def on_exhausted(act: Callable[[Sequence[Value]], None]) -> None:
    """Call `act(values)` when there is no memory for these values of a program, before the error is raised."""
    _on_exhausted.append(act)
