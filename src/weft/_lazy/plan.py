"""Planning a flush: numbering the graph, choosing the outputs of its program, and the buffers it may overwrite.

Liveness is found by reference counts. A value to which anything but other pending values refers must be an output of
the program. A leaf to which only this flush refers may give its buffer to a result. The references added by counting
itself are calibrated (`refcounts`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from sys import getrefcount

from weft._base.collector import collector_paused
from weft._base.forks import hold_over_forks
from weft._base.numpy_guards import ARRAY
from weft._base.site import user_site
from weft._base.types import AnyArray, Arg
from weft._lazy import explain, refcounts
from weft._lazy.native import native
from weft._lazy.program import Graph, Program, Step, program_of
from weft._lazy.role import FREED
from weft._lazy.runtime import is_ready, tier_of
from weft._lazy.signature import Output
from weft._lazy.value import PENDING, Computing, Doubt, Doubtful, RecordedCheck, StandIn, Value, inputs_first, is_taped
from weft.ops._native import LEAST_DONATION

planning = threading.RLock()
"""Held while values are claimed. A thread may take it twice: a finalizer can compute while the thread holds it."""
hold_over_forks(planning)

Reads = Callable[[Value], tuple[Sequence[int], Sequence[int]]]


class Busy(Exception):
    """An input is not in memory: another thread is computing it, or its array was released. `wait()` changes that."""

    def __init__(self, wait: Callable[[], None]) -> None:
        super().__init__()
        self.wait = wait


# no cell: filled when the library is imported
class _Registry:
    """State of all flushes.

    reads  set by the autograd layer: the inputs and outputs that the derivative of a value's application reads
    """

    reads: Reads


def register_reads(reads: Reads) -> None:
    """Set the function by which the autograd layer tells which values must outlive a flush for derivatives."""
    _Registry.reads = reads
    if native is not None:
        native.bind(reads=reads)


def read_inputs(value: Value) -> Sequence[int]:
    """Positions of the inputs of a value's application that its derivative will read."""
    return _Registry.reads(value)[0]


class Batch:
    """What one program will compute."""

    __slots__ = ("arrays", "computing", "doubts", "graph", "outputs", "program")
    arrays: list[AnyArray]
    graph: Graph
    outputs: list[Value]
    program: Program
    doubts: dict[Value, tuple[Doubt, ...]]  # for those of `outputs` that are in doubt
    computing: Computing  # the content of `outputs` meanwhile


def plan(values: list[Value], wanted: tuple[Value, ...]) -> Batch | None:
    """Number the graph, choose the outputs, and claim them. Raises `Busy` if an input has no array yet."""
    with planning, collector_paused:
        return _planned(values, wanted)


def _planned(values: list[Value], wanted: tuple[Value, ...]) -> Batch | None:
    graph = _Numbering()
    try:
        graph.add(values)
        for value in wanted:
            if value.num < 0 and value.is_pending:
                graph.add(_pending_ancestors(value))
        # References are counted from here on, so neither this frame nor the caller's list may hold one.
        value = None
        values.clear()
        return _batch(graph)
    finally:
        for entry in graph.entries:
            entry.num = -1


def _batch(graph: _Numbering) -> Batch | None:
    nodes, leaves, uses = graph.nodes, graph.leaves, graph.uses
    for value in graph.with_extras:  # the graph itself refers to what values keep for their derivatives
        for extra in value.extras:
            if extra.num >= 0:
                uses[extra.num] += 1
    graph.with_extras = []
    for value in (*graph.doubtful, *graph.unconfirmed):
        uses[value.num] += 1
    value = None
    taped = graph.taped and any(map(is_taped, nodes))
    own = 2 + refcounts.IN_A_LOCAL  # entries, nodes
    chosen = [v for v in nodes if getrefcount(v) - uses[v.num] > own]
    if taped:  # else a loss that is read before `backward()` would be computed twice
        kept = _for_derivatives(nodes, chosen)
        chosen = [v for v in nodes if v.num in kept]
    if not chosen:
        return None
    batch = Batch()
    batch.arrays = [leaf.content for leaf in leaves if not leaf.aval.weak]
    batch.doubts = {}
    if graph.unconfirmed:
        batch.arrays = [_for_program(leaf) for leaf in leaves if not leaf.aval.weak]
    batch.graph = Graph(
        # A derivative may read leaves to which nothing but the tape refers, which counting takes for unused.
        graph.steps,
        nodes,
        leaves,
        [v.num for v in chosen],
        () if taped else _donated(leaves, uses, chosen),
    )
    batch.program = program_of(batch.graph)
    if graph.unconfirmed or graph.doubtful:
        batch.doubts = graph.doubts_of(chosen)
    batch.computing = Computing(calls_back=batch.program.calls_back)
    batch.outputs = chosen
    for value in chosen:
        value.content = batch.computing
    return batch


_MOST_INTERPRETED = 2e-2  # seconds from which on planning in Python takes no part of the time that counts


def _interpretable(
    entries: Sequence[Value],
    steps: Sequence[Step],
    nodes: Sequence[Value],
    leaves: Sequence[Value],
    wanted: Sequence[int],
) -> tuple[Program, Callable[[Sequence[AnyArray]], Sequence[AnyArray]], float] | None:
    """For the extension: the program of a small graph, its machine, and the seconds that interpreting it costs.

    None for graphs that are always planned here. `entries` are all values, in the order of their numbers.
    """
    with planning, collector_paused:
        try:
            for number, entry in enumerate(entries):
                entry.num = number
            program = program_of(Graph(steps, nodes, leaves, wanted, ()))
        finally:
            for entry in entries:
                entry.num = -1
    seconds = program.interpreted.seconds
    if program.calls_back or program.waits or program.compiled.collectives or seconds > _MOST_INTERPRETED:
        return None
    if seconds and not program.runs and tier_of(program.device) == "auto":  # it may be compiled some time
        explain.note_interpreted(user_site(), program, steps)
    return program, program.interpreted.run, seconds


def _has_passed(check: RecordedCheck, codes: AnyArray) -> bool:
    """For the extension: whether a check has passed, by the codes that its program gives, or that are known."""
    if codes is not None:
        check.set_codes(codes)
    return _is_settled(check)


def _leaf_array(leaf: Value) -> AnyArray:
    """For the extension: a leaf's elements as a NumPy array; None if they are not in memory, or in doubt."""
    content = leaf.content
    if isinstance(content, Doubtful) and all(_is_settled(doubt.check) for doubt in content.doubts):
        leaf.content = content.array
    return leaf.at_hand()


if native is not None:
    native.bind(acquire=planning.acquire, release=planning.release)
    native.bind(program_of=_interpretable, has_passed=_has_passed, leaf_array=_leaf_array)


def _for_program(leaf: Value) -> AnyArray:
    """The array of a leaf that may be in doubt. No list of contents is kept: `_donated` counts references to them."""
    content = leaf.content
    return content.for_program() if isinstance(content, StandIn) else content


class _Numbering:
    """A graph while it is numbered, in order of first use.

    entries      every value so far; its position is its number
    nodes        those that the program computes
    leaves       those that are given to it
    uses         for each entry, the number of references from the graph itself
    taped        whether some may take part in a later backward pass
    doubtful     those of `nodes` whose application (or the one that it is a derivative of) has an unread check
    unconfirmed  leaves in doubt
    """

    __slots__ = (
        "doubtful",
        "entries",
        "leaves",
        "nodes",
        "shared",
        "steps",
        "taped",
        "unconfirmed",
        "uses",
        "with_extras",
    )

    def __init__(self) -> None:
        self.entries: list[Value] = []
        self.nodes: list[Value] = []
        self.leaves: list[Value] = []
        self.uses: list[int] = []
        self.steps: list[tuple[Output, tuple[int, ...]]] = []
        self.shared: dict[int, int] = {}
        self.with_extras: list[Value] = []
        self.taped = False
        self.doubtful: list[Value] = []
        self.unconfirmed: list[Value] = []

    def add(self, values: list[Value]) -> None:
        """Number pending values, after their inputs that have no number yet."""
        entries, uses, steps, nodes = self.entries, self.uses, self.steps, self.nodes
        for value in values:
            if value.num >= 0 or value.content is not PENDING:  # numbered, or computed by another thread meanwhile
                continue
            origin, inputs = value.origin, value.inputs
            if origin.alone:  # pyright: ignore[reportOptionalMemberAccess]  what is pending has an origin
                args: list[int] = []
                for x in inputs:
                    number = x.num
                    if number < 0:
                        number = self._enter(x)
                    uses[number] += 1
                    args.append(number)
                steps.append((origin, tuple(args)))  # pyright: ignore[reportArgumentType]
            else:
                steps.append((origin, self._shared_inputs(origin, inputs)))  # pyright: ignore[reportArgumentType]
                signature = origin.signature  # pyright: ignore[reportOptionalMemberAccess]
                if signature.requirement is not None and value.doubt is not None and not value.doubt.check.passed:
                    self.doubtful.append(value)
            if value.role is not None and value.role is not FREED:
                self.taped = True
            if value.extras:
                self.with_extras.append(value)
            value.num = len(entries)
            entries.append(value)
            nodes.append(value)
            uses.append(0)

    def _shared_inputs(self, origin: Arg, inputs: tuple[Value, ...]) -> tuple[int, ...]:
        """Numbers of the inputs shared by an application's outputs; for further outputs, `~` the first one's step."""
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
        """Number an input that is not in the list: a leaf, or a value pending elsewhere."""
        content = value.content
        if content is PENDING:
            self.add(_pending_ancestors(value))
        else:
            if isinstance(content, StandIn):
                if content.array is None:
                    raise Busy(partial(content.wait, value))
                self.unconfirmed.append(value)
            value.num = len(self.entries)
            self.entries.append(value)
            self.leaves.append(value)
            self.uses.append(0)
        return value.num

    def doubts_of(self, values: list[Value]) -> dict[Value, tuple[Doubt, ...]]:
        """The doubts of each of these values that depends on something in doubt. Values with equal ones share them."""
        doubts: list[Doubt] = []
        masks = [0] * len(self.entries)  # for each entry, a bit for each doubt
        of_leaves: dict[int, int] = {}  # masks, by the identity of the doubts that leaves share
        for leaf in self.unconfirmed:
            shared = leaf.content.doubts
            if id(shared) not in of_leaves:
                of_leaves[id(shared)] = _mask(doubts, [d for d in shared if not _is_settled(d.check)])
            masks[leaf.num] = of_leaves[id(shared)]
        sources = {value.num: value.doubt for value in self.doubtful}
        inputs: tuple[Value, ...] = ()
        of_inputs = 0
        for value in self.nodes:
            if value.inputs is not inputs:  # the outputs of an application follow each other
                inputs, of_inputs = value.inputs, 0
                for x in inputs:
                    of_inputs |= masks[x.num]
            mask = masks[value.num] | of_inputs
            if value.num in sources:
                mask |= _mask(doubts, [sources[value.num]])
            masks[value.num] = mask
        sets = {m: tuple([doubt for at, doubt in enumerate(doubts) if m >> at & 1]) for m in set(masks)}
        return {value: sets[masks[value.num]] for value in values if masks[value.num]}


def _mask(doubts: list[Doubt], some: Sequence[Doubt | None]) -> int:
    """A bit mask of some doubts by their positions in the list, to which missing ones are added."""
    mask = 0
    for doubt in some:
        assert doubt is not None, "only those with a doubt are noted"
        if doubt not in doubts:
            doubts.append(doubt)
        mask |= 1 << doubts.index(doubt)
    return mask


def _is_settled(check: RecordedCheck) -> bool:
    """Whether a check is known to have passed; does not wait."""
    code = check.code
    codes = None if code is None else code.available
    if codes is not None and (isinstance(codes, ARRAY) or is_ready(codes)):
        check.set_codes(codes)
    return check.code is None and check.failure is None


def _pending_ancestors(value: Value) -> list[Value]:
    """`value` and the pending values that it needs and that are not numbered, inputs first."""
    return inputs_first(value, lambda x: x.num < 0 and x.content is PENDING, lambda _: True)


def _for_derivatives(nodes: list[Value], outside: list[Value]) -> set[int]:
    """Numbers of the values that are referred to from outside the graph, and of those that a derivative will read."""
    kept = {value.num for value in outside}
    reached = set(kept)
    for value in reversed(nodes):
        if value.num not in reached or not is_taped(value):
            continue
        reached.update(x.num for x in value.inputs)
        origin = value.origin
        assert origin is not None, "a pending value has an origin"
        inputs, outputs = _Registry.reads(value)
        kept.update(value.inputs[i].num for i in inputs)
        for index in outputs:
            if index == origin.index:
                kept.add(value.num)
            elif value.extras and index >= origin.signature.main:
                kept.add(value.extras[index - origin.signature.main].num)
    return kept


def _donated(leaves: list[Value], uses: list[int], chosen: list[Value]) -> list[int]:
    """Positions of array leaves to which nobody else refers and whose buffer fits a result."""
    wanted: dict[Hashable, int] = {}
    for value in chosen:
        if value.aval.nbytes >= LEAST_DONATION:
            wanted[value.aval] = wanted.get(value.aval, 0) + 1
    donated: list[int] = []
    position = -1
    own = 2 + refcounts.IN_A_LOCAL
    for leaf in leaves:
        if leaf.aval.weak:
            continue
        position += 1
        array = leaf.content
        if isinstance(array, StandIn):  # in doubt
            if getrefcount(array) != 1 + refcounts.IN_A_LOCAL:  # referred to by the leaf
                continue
            array = array.array
        if (
            wanted.get(leaf.aval, 0)
            and (leaf.origin is not None or leaf.owner is None)
            and getrefcount(leaf) - uses[leaf.num] == own  # entries, leaves
            and getrefcount(array) == own  # the leaf (or what replaces its array) and the batch's list
        ):
            wanted[leaf.aval] -= 1
            donated.append(position)
    return donated
