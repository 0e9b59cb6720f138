"""Flushing: which pending values to compute, in which program, and what to free.

Liveness is read off reference counts. A pending value that only the list of pending values holds is dead. One that
somebody besides other pending values holds must come out of the program. A leaf that only this flush holds may give
its buffer to a result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from sys import getrefcount
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from weft._base import config
from weft._base.state import LEAST_LIMIT, Pending, ambient
from weft._lazy.infer import Output
from weft._lazy.program import Graph, Program, execute, pack, pack_of, program_of
from weft._lazy.runtime import jax_device
from weft._lazy.value import FREED, Value, inputs_first

_LEAST_DONATION = 4096  # bytes; smaller buffers are not worth a program of their own
_CHUNK = 96  # operators in a program cut from a repeating stretch
_LONG = 256  # operators from which on it is worth looking for repetition
_MANY = 32  # repetitions that no network's layers reach in half of a step
_MOST_FLAGS = 64

_planning = threading.Lock()

Reads = Callable[[Value], tuple[Sequence[int], Sequence[int]]]


class Ticket:
    """Stands in for an array while a flush computes it."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = threading.Event()


class _Busy(Exception):
    """An input is being computed by another thread."""

    def __init__(self, ticket: Ticket) -> None:
        super().__init__()
        self.ticket = ticket


class _Shared:
    """State of all flushes.

    reads  set by the autograd layer: which inputs and outputs the derivative of a value's application reads
    """

    reads: Reads


def register_reads(reads: Reads) -> None:
    """Let the layer above say what must outlive a flush for its sake."""
    _Shared.reads = reads


def read_inputs(value: Value) -> Sequence[int]:
    """Positions of the inputs of a value's application that its derivative will read."""
    return _Shared.reads(value)[0]


# --- entry points ---------------------------------------------------------------------------------------------


def array_of(value: Value) -> Any:
    """The jax array of a value, computed now if need be. Execution is asynchronous; nothing waits for the result."""
    if type(held_by(value)) is np.ndarray:
        _placed(value)
    return value.array


def held_by(value: Value) -> Any:
    """The same, or the NumPy array of a value that came from elsewhere and was not yet needed on its device."""
    array = value.array
    while array is None or type(array) is Ticket:
        if array is None:
            flush(ambient().pending, (value,))
        else:
            array.done.wait()
        array = value.array
    return array


def _placed(value: Value) -> None:
    """Move a value from a NumPy array to its device. On a CPU the memory stays; XLA never writes over it."""
    host = value.array
    # Twice as fast as `device_put`.
    value.array = jax.make_array_from_callback(host.shape, _sharding(value.aval.device), lambda _: host)


@lru_cache(maxsize=64)  # key: the device
def _sharding(where: Any) -> SingleDeviceSharding:
    return SingleDeviceSharding(jax_device(where))


def flush(pending: Pending, wanted: tuple[Value, ...] = ()) -> None:
    """Compute all living values of a list, and `wanted` whoever recorded them."""
    pending.limit = LEAST_LIMIT
    values = _take(pending)
    if len(values) > _LONG:
        _flush_in_chunks(values, pending, _MANY)
    _flush(values, pending, wanted)


def flush_pending() -> None:
    """Compute what this thread has recorded, apart from what comes next; in a capture, or in `keeping`, nothing."""
    state = ambient()
    if state.capture is None and not state.pending.kept:
        flush(state.pending)


@contextmanager
def keeping() -> Iterator[None]:
    """Leave what is recorded in here to be computed later: by whoever calls `flush_pending` or needs a value."""
    pending = ambient().pending
    before, pending.kept = pending.kept, True
    try:
        yield
    finally:
        pending.kept = before


def relieve(pending: Pending) -> None:
    """Called when a list has reached its limit: drop the dead; compute if too many live."""
    values = _take(pending)
    if len(values) < config.NODE_CAP:
        pending[:0] = values
        pending.limit = max(LEAST_LIMIT, 2 * len(values))
        return
    pending.limit = config.NODE_CAP
    _flush_in_chunks(values, pending, 2)
    pending[:0] = values


def _flush_in_chunks(values: list[Value], pending: Pending, least: int) -> None:
    """Compute the repeating stretch of a long list in equal programs, and leave what follows it.

    So an endless loop compiles one program, whatever its length is and wherever a limit falls in it. The stretch must
    repeat `least` times; the layers of a network do so, too, and are better off in one program.
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


def check_flags(flags: list[Any], most: int = 0) -> None:
    """Wait for index checks until at most `most` are unread; `IndexError` with the user's line if one failed."""
    while len(flags) > most:
        bad, sites = flags.pop(0)
        for failed, (signature, site) in zip(jax.device_get(bad).tolist(), sites, strict=True):
            if failed:
                shapes = ", ".join(map(repr, signature.avals))
                raise signature.check_error(
                    f"{signature.name}(): {signature.complaint(failed)} (inputs {shapes}), called at {site}"
                )


def escaping(region: list[Value]) -> set[int]:
    """Ids of the values of a region, still pending, that somebody holds besides the region itself."""
    uses: dict[int, int] = {}
    shared: set[int] = set()
    for value in region:
        held = value.inputs if id(value.inputs) not in shared else ()
        shared.add(id(value.inputs))
        for x in (*held, *(value.extras or ())):
            uses[id(x)] = uses.get(id(x), 0) + 1
    value = held = x = None  # references are counted from here on
    return {id(v) for v in region if v.array is None and getrefcount(v) - uses.get(id(v), 0) > 3}


# --- planning -------------------------------------------------------------------------------------------------


class _Batch:
    """What one program is to compute."""

    __slots__ = ("arrays", "graph", "made", "packs", "program", "sites", "ticket")
    arrays: list[jax.Array]
    graph: Graph
    made: list[Value]
    packs: tuple[Any, Any, Any]
    program: Program
    sites: list[tuple[Any, str]]
    ticket: Ticket


def _take(pending: list[Value]) -> list[Value]:
    """Empty the list; return the living, in order. Dead values go last to first, so whole dead graphs fall."""
    living: list[Value] = []
    try:
        while True:
            value = pending.pop()
            if value.array is None and getrefcount(value) > 2:
                living.append(value)
    except IndexError:
        living.reverse()
        return living


def _flush(values: list[Value], pending: Pending, wanted: tuple[Value, ...]) -> None:
    devices = {v.aval.device: None for v in values} if len(values) > 1 else {}
    if len(devices) > 1:  # values of different devices never meet in one application
        for where in devices:
            _flush([v for v in values if v.aval.device is where], pending, ())
        values = []
    while True:
        try:
            with _planning:
                batch = _plan(values, wanted)
            break
        except _Busy as busy:
            busy.ticket.done.wait()
    if batch is not None:
        _run(batch, pending)


def _plan(values: list[Value], wanted: tuple[Value, ...]) -> _Batch | None:
    """Number the graph, choose what comes out of it, and claim that."""
    graph = _Numbering()
    try:
        graph.add(values)
        for value in wanted:
            if value.num < 0 and value.array is None:
                graph.add(_pending_ancestors(value))
        value = None  # references are counted from here on
        values.clear()
        return _batch(graph)
    finally:
        for entry in graph.entries:
            entry.num = -1


def _batch(graph: _Numbering) -> _Batch | None:
    made, leaves, uses = graph.made, graph.leaves, graph.uses
    for value in graph.with_extras:  # what values keep for their derivatives, the graph holds itself
        for extra in value.extras:
            if extra.num >= 0:
                uses[extra.num] += 1
    graph.with_extras = []
    value = None
    taped = graph.taped and any(v.tape is not None and not (v.tape.leaf or v.tape.freed) for v in made)
    chosen = [v for v in made if getrefcount(v) - uses[v.num] > 4]  # entries, made, the loop, the call
    if taped:
        kept = _for_derivatives(made, chosen)
        chosen = [v for v in made if v.num in kept]
    if not chosen:
        return None
    batch = _Batch()
    batch.arrays = [leaf.array for leaf in leaves if not leaf.aval.weak]
    batch.packs = _packs(leaves)
    batch.graph = Graph(
        graph.steps, made, leaves, [v.num for v in chosen], () if taped else _donated(leaves, uses, chosen)
    )
    batch.program = program_of(batch.graph)
    batch.sites = [(graph.steps[at][0].signature, made[at].site) for at in batch.program.checks]
    batch.ticket = Ticket()
    batch.made = chosen
    for value in chosen:
        value.array = batch.ticket
    return batch


class _Numbering:
    """A graph as it is being numbered, in order of first use.

    entries      every value so far; its position is its number
    made         those that the program computes
    leaves       those that it is given
    uses         of each entry, the references that the graph itself holds
    taped        whether some may take part in a backward pass to come
    """

    __slots__ = ("entries", "leaves", "made", "shared", "steps", "taped", "uses", "with_extras")

    def __init__(self) -> None:
        self.entries: list[Value] = []
        self.made: list[Value] = []
        self.leaves: list[Value] = []
        self.uses: list[int] = []
        self.steps: list[tuple[Output, tuple[int, ...]]] = []
        self.shared: dict[int, int] = {}
        self.with_extras: list[Value] = []
        self.taped = False

    def add(self, values: list[Value]) -> None:
        """Number pending values; their inputs first, where they have no number yet."""
        entries, uses, steps, made = self.entries, self.uses, self.steps, self.made
        for value in values:
            if value.num >= 0 or value.array is not None:  # another thread may have computed it since it was taken
                continue
            origin, inputs = value.origin, value.inputs
            if origin.alone:  # pyright: ignore[reportOptionalMemberAccess]  what is pending has an origin
                args = []
                for x in inputs:
                    number = x.num
                    if number < 0:
                        number = self._enter(x)
                    uses[number] += 1
                    args.append(number)
                steps.append((origin, tuple(args)))  # pyright: ignore[reportArgumentType]
            else:
                steps.append((origin, self._shared_inputs(origin, inputs)))  # pyright: ignore[reportArgumentType]
            if value.tape is not None and value.tape is not FREED:
                self.taped = True
            if value.extras is not None:
                self.with_extras.append(value)
            value.num = len(entries)
            entries.append(value)
            made.append(value)
            uses.append(0)

    def _shared_inputs(self, origin: Any, inputs: tuple[Value, ...]) -> tuple[int, ...]:
        """Numbers of inputs that outputs of one application share; after the first output, where that stands."""
        first = self.shared.get(id(inputs))
        if first is not None and self.steps[first][0].signature is origin.signature:
            return (~first,)
        args = tuple([x.num if x.num >= 0 else self._enter(x) for x in inputs])
        self.shared[id(inputs)] = len(self.steps)
        if first is None:
            for number in args:
                self.uses[number] += 1
        return args

    def _enter(self, value: Value) -> int:
        """Number an input that is no value of the list: a leaf, or pending elsewhere."""
        if value.array is None:
            self.add(_pending_ancestors(value))
        else:
            held = type(value.array)
            if held is Ticket:
                raise _Busy(value.array)
            if held is np.ndarray:
                _placed(value)
            value.num = len(self.entries)
            self.entries.append(value)
            self.leaves.append(value)
            self.uses.append(0)
        return value.num


def _pending_ancestors(value: Value) -> list[Value]:
    """`value` and the pending values that it needs and that have no number yet, inputs first."""
    return inputs_first(value, lambda x: x.num < 0 and x.array is None, lambda _: True)


def _for_derivatives(made: list[Value], outside: list[Value]) -> set[int]:
    """Numbers of the values held outside of the graph, and of those that a living tape will read."""
    kept = {value.num for value in outside}
    reached = set(kept)
    for value in reversed(made):
        tape = value.tape
        if tape is None or tape.leaf or tape.freed or value.num not in reached:
            continue
        reached.update(x.num for x in value.inputs)
        origin = value.origin
        assert origin is not None, "a pending value has an origin"
        inputs, outputs = _Shared.reads(value)
        kept.update(value.inputs[i].num for i in inputs)
        for index in outputs:
            if index == origin.index:
                kept.add(value.num)
            elif value.extras and index >= origin.signature.main:
                kept.add(value.extras[index - origin.signature.main].num)
    return kept


def _donated(leaves: list[Value], uses: list[int], chosen: list[Value]) -> list[int]:
    """Positions of array leaves that nobody else holds and whose buffer fits a result."""
    wanted: dict[Any, int] = {}
    for value in chosen:
        if value.aval.nbytes >= _LEAST_DONATION:
            wanted[value.aval] = wanted.get(value.aval, 0) + 1
    donated = []
    position = -1
    for leaf in leaves:
        if leaf.aval.weak:
            continue
        position += 1
        if (
            wanted.get(leaf.aval, 0)
            and leaf.extras is None
            and getrefcount(leaf) - uses[leaf.num] == 4  # entries, leaves, this loop, the call itself
            and getrefcount(leaf.array) == 3  # the leaf, the batch's list, the call itself
        ):
            wanted[leaf.aval] -= 1
            donated.append(position)
    return donated


def _packs(leaves: list[Value]) -> tuple[Any, Any, Any]:
    numbers: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    for leaf in leaves:
        if leaf.aval.weak:
            numbers[pack_of(leaf.aval)].append(leaf.array)
    return pack(numbers)


def _repeating(origins: list[Any], least: int) -> tuple[int, int, int]:
    """(start, end, size): from `start` to `end`, equal runs of `size` operators follow each other.

    The shortest period of the list's middle half (Knuth, Morris and Pratt's failure function), extended both ways as
    far as it holds. One that the half holds fewer than `least` times does not count; then the run is the whole list.
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


# --- running --------------------------------------------------------------------------------------------------


def _run(batch: _Batch, pending: Pending) -> None:
    made, arrays = batch.made, batch.arrays
    batch.arrays = []
    try:
        results, flags = execute(batch.program, batch.graph, arrays, batch.packs)
    except BaseException:
        for value in made:  # still pending: whoever needs one may try again
            value.array = None
        raise
    else:
        for value, array in zip(made, results, strict=True):
            value.array = array
            tape = value.tape
            if tape is None or tape.leaf or tape.freed:
                value.inputs = ()
                value.extras = None
    finally:
        batch.ticket.done.set()
    if flags is not None:
        pending.flags.append((flags, batch.sites))
        check_flags(pending.flags, _MOST_FLAGS)
