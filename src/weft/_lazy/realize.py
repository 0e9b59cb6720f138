"""Flushing: computing pending values, and reading them.

A pending value to which only the list of pending values refers is dead. `plan` chooses the outputs of a program.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from sys import getrefcount
from typing import Any

import jax
import numpy as np

from weft._base import config
from weft._base.device import CPU, META
from weft._base.pending import LEAST_LIMIT, Pending
from weft._base.state import ambient
from weft._base.timeline import Listeners, Phase, spanned, tell
from weft._lazy import metrics, refcounts
from weft._lazy.interpreted import LEAST_PROGRAM, costs_of, evaluated
from weft._lazy.interpreter import quiet
from weft._lazy.ledger import ledgers, note_alive, note_run
from weft._lazy.plan import Batch, Busy, Ticket, plan
from weft._lazy.program import Run, execute, place
from weft._lazy.runtime import is_exhaustion, raise_if_exhausted, telling_of_memory, tier_of
from weft._lazy.value import NO_DATA, Absent, Check, Unconfirmed, Value, is_taped

_CHUNK = 96  # operators in a program cut from a repeating stretch
_LONG = 256  # operators from which on it is worth looking for repetition
_FEW = 16  # operators that may be quicker computed than planned
_MANY = 32  # repetitions that no network's layers reach in half of a step
_MOST_CHECKS = 64  # that a thread leaves unread

_planning = threading.Lock()
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
            array.wait()
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
    values = _take(pending)
    try:
        computed = len(values) <= _FEW and _compute_at_once(values)
    except MemoryError:
        computed = False  # `_run` meets it again, and makes good what it breaks
    if computed:
        values.clear()
        if all(value.array is not None for value in wanted):
            return
    if len(values) > _LONG:
        _flush_in_chunks(values, pending, _MANY)
    _flush(values, pending, wanted)


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
    values = _take(pending)
    if len(values) < config.NODE_CAP:
        pending.set_room(max(LEAST_LIMIT, 2 * len(values)))
    else:
        pending.set_room(config.NODE_CAP)
        _flush_in_chunks(values, pending, 2)
    pending[:0] = values
    pending.moved(len(values))


def _flush_in_chunks(values: list[Value], pending: Pending, least: int) -> None:
    """Compute the repeating stretch of a long list by equal programs, and leave what follows it pending.

    So an endless loop compiles one program, whatever its length and wherever the limit falls in it. The stretch must
    repeat `least` times: the layers of a network repeat, too, but are better computed by one program.
    """
    start, end, size = _repeating([v.origin for v in values], least)
    if not start and size == len(values) and len(values) < config.NODE_CAP:
        return
    rest = values[end:]
    chunks = [values[:start], *(values[at : at + size] for at in range(start, end, size))]
    values.clear()
    for chunk in chunks:
        living = list(chunk)
        chunk.clear()
        _flush(living, pending, ())
    values.extend(rest)


def escaping(region: Pending) -> set[int]:
    """Ids of the pending values of a region to which anything but the region and its checks refers."""
    uses: dict[int, int] = {}
    shared: set[int] = set()
    for value in region:
        held = value.inputs if id(value.inputs) not in shared else ()
        shared.add(id(value.inputs))
        for x in (*held, *(value.extras or ())):
            uses[id(x)] = uses.get(id(x), 0) + 1
    value = held = x = None  # references are counted from here on
    own = 1 + refcounts.IN_A_LOCAL  # the region
    codes = {id(check.code) for check in (*region.checks, *_checks_of(region))}
    return {id(v) for v in region if v.array is None and getrefcount(v) - uses.get(id(v), 0) > own} - codes


def _checks_of(region: Pending) -> Iterator[Check]:
    """The checks of a region's applications."""
    for value in region:
        if value.origin.signature.doubtful and value.doubt is not None:
            yield value.doubt.check


# --- flushing ---------------------------------------------------------------------------------------------------


def _take(pending: Pending) -> list[Value]:
    """Empty the list; return the living values, in order. Dead ones are dropped last to first: whole graphs fall."""
    living: list[Value] = []
    own = refcounts.IN_A_LOCAL
    pending.moved(-len(pending))
    try:
        while True:
            value = pending.pop()
            if value.array is None and getrefcount(value) > own:
                living.append(value)
    except IndexError:
        living.reverse()
        return living


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
    if not _on_one_device(values):  # values of different devices never meet in one application
        for device in {v.aval.device: None for v in values}:
            _flush([v for v in values if v.aval.device is device], pending, ())
        values = []
    if values and values[0].aval.device is META:
        _leave_without_data(values)
        values = []
    if wanted and wanted[0].aval.device is META:
        _leave_without_data(wanted)
        wanted = ()
    while True:
        try:
            with _planning:
                batch = plan(values, wanted)
            break
        except Busy as busy:
            busy.ticket.wait()
    if batch is None:
        return
    target, operators = batch.outputs[0].aval.device, len(batch.graph.steps)
    _run(batch, pending)
    if ledgers:
        batch = None  # and with it what the program has overwritten
        note_alive(target, operators)


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


def _repeating(origins: list[Any], least: int) -> tuple[int, int, int]:
    """(start, end, size): from `start` to `end`, equal runs of `size` operators follow each other.

    It finds the shortest period of the list's middle half (by Knuth, Morris and Pratt's failure function), and extends
    it both ways. If the half has fewer than `least` repetitions, the run is the whole list.
    """
    n = len(origins)
    middle = origins[n // 4 : 3 * n // 4]
    failure = [0] * len(middle)
    k = 0
    for i in range(1, len(middle)):
        while k and middle[i] is not middle[k]:
            k = failure[k - 1]
        k += middle[i] is middle[k]
        failure[i] = k
    period = len(middle) - failure[-1]
    if period * least > len(middle):
        return 0, n, n
    start, end = n // 4, 3 * n // 4
    while start and origins[start - 1] is origins[start - 1 + period]:
        start -= 1
    while end < n and origins[end] is origins[end - period]:
        end += 1
    size = period * max(1, _CHUNK // period)
    return start, end - (end - start) % size, size


def _run(batch: Batch, pending: Pending) -> None:
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
            value.array = None
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
            _forget_inputs(value)
        if ledgers:
            note_run(batch.program.bytes_at_once, batch.graph.inputs, outputs)
    finally:
        batch.ticket.done.set()
    report(pending, _MOST_CHECKS)


def _largest(values: Sequence[Value]) -> list[Value]:
    """The values that are at least half as large as the largest one: most likely there was no memory for these."""
    most = max([value.aval.nbytes for value in values])
    return [value for value in values if 2 * value.aval.nbytes >= most]


_on_exhausted: list[Callable[[Sequence[Value]], None]] = []


def on_exhausted(act: Callable[[Sequence[Value]], None]) -> None:
    """Call `act(values)` when there is no memory for these values of a program, before the error is raised."""
    _on_exhausted.append(act)
