"""Programs: compiled or interpreted, made once for all graphs of one structure."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from weft._base import config
from weft._base.activity import compiling
from weft._base.collector import collector_paused
from weft._base.device import CPU, device
from weft._base.flight import Flight, FlightRecorder
from weft._base.site import user_site
from weft._base.timeline import Listeners, Phase, spanned, tell
from weft._base.types import AnyArray
from weft._lazy import explain, metrics
from weft._lazy.callbacks import calls_back
from weft._lazy.compiled_graph import CompiledGraph
from weft._lazy.form import Application
from weft._lazy.interpreted import PROGRAM_SECONDS, InterpretedGraph
from weft._lazy.interpreter import Costs
from weft._lazy.native import native
from weft._lazy.packs import packs_of, slots_of
from weft._lazy.runtime import jax_device, on_fork, tier_of
from weft._lazy.segments import bytes_at_once
from weft._lazy.signature import Output, Signature
from weft._lazy.value import Value

Step = tuple[Output, tuple[int, ...]]
"""An output and the numbers of the application's inputs. For a further output of an earlier step's application, the
numbers are replaced by the single number `~position` of that step: an optimizer's step has as many outputs as
inputs."""

_MOST_HANDED = 65_536  # bytes that are copied in the time that moving them to their device takes at least


class Graph:
    """A graph in canonical form. Entries are numbered in order of first use.

    steps     the recorded outputs, in order
    nodes     the values of the steps, numbered
    inputs    the values of the leaves, numbered
    wanted    numbers of the entries to return
    donated   positions, among leaves that are arrays, whose buffers may be overwritten
    """

    __slots__ = ("donated", "inputs", "nodes", "steps", "wanted")

    def __init__(
        self,
        steps: Sequence[Step],
        nodes: Sequence[Value],
        inputs: Sequence[Value],
        wanted: Sequence[int],
        donated: Sequence[int],
    ) -> None:
        self.steps = steps
        self.nodes = nodes
        self.inputs = inputs
        self.wanted = wanted
        self.donated = donated

    @property
    def numbers(self) -> list[int]:
        """The number of each step; only while the graph is being planned."""
        return [value.num for value in self.nodes]

    def applications(self) -> list[Application]:
        """The applications to compute, with the outputs of each one together; only while the graph is being planned."""
        outputs: dict[int, list[tuple[int, int]]] = {}
        result: list[Application] = []
        for at, ((output, inputs), value) in enumerate(zip(self.steps, self.nodes, strict=True)):
            first = ~inputs[0] if inputs and inputs[0] < 0 else at
            if first == at:
                outputs[at] = []
                result.append((output.signature, inputs, outputs[at]))
            outputs[first].append((value.num, output.index))
        return result

    @property
    def key(self) -> Hashable:
        """A key that is equal for graphs that compile to the same program."""
        return self.key_with(self.donated)

    def key_with(self, donated: Sequence[int]) -> Hashable:
        """The key of this graph if these buffers were overwritten."""
        return (*self.steps, tuple(self.wanted), tuple(donated))


def place(value: Value) -> None:
    """Move a value from a NumPy array to its device. On a CPU the memory is shared; XLA never writes to it."""
    value.content = placed(value.content, value.aval.device)


@spanned(Phase.TRANSFER, "to device")
def placed(host: np.ndarray, target: device) -> jax.Array:
    """A NumPy array on a device."""
    # Twice as fast as `device_put`.
    if target is CPU:
        return jax.make_array_from_callback(host.shape, _sharding(target), lambda _: host)
    with metrics.to_device(host.nbytes):
        return jax.make_array_from_callback(host.shape, _sharding(target), lambda _: host)


@lru_cache(maxsize=64)  # key: the device
def _sharding(target: object) -> SingleDeviceSharding:
    return SingleDeviceSharding(jax_device(target))


on_fork(_sharding.cache_clear)


class Program:
    """The program for all graphs of one structure.

    interpreted  the graph for the interpreter
    compiled     the graph for XLA, which makes `run`
    costs        the estimated costs of compiling it, and of interpreting it once
    run          the compiled graph: (packs of numbers, arrays) -> arrays; None before its first run
    runs, spent  how often it was interpreted, and the estimated seconds of that
    summary      what the flight recorder keeps of its operators, once it has run
    calls_back   whether it calls users' functions
    waits        whether its results are waited for, so that a failure is one of the call that runs it
    handed       by position, the NumPy array that was last passed to the compiled graph without moving it
    """

    __slots__ = (
        "__weakref__",
        "calls_back",
        "compiled",
        "device",
        "handed",
        "interpreted",
        "maps",
        "run",
        "runs",
        "spent",
        "summary",
        "waits",
    )

    def __init__(self, graph: Graph) -> None:
        self.device = graph.steps[0][0].aval.device
        applications, leaves = graph.applications(), [leaf.num for leaf in graph.inputs]
        wanted, slots = tuple(graph.wanted), slots_of([leaf.aval for leaf in graph.inputs])
        self.interpreted = InterpretedGraph(applications, leaves, wanted, self.device)
        self.calls_back = any(calls_back(signature) for signature, _, _ in applications)
        # It is not to overwrite anything if it may fail, nor to go on in the background while a user's function, which
        # it has called, reads what it is to compute.
        self.waits = self.calls_back or (self.device is CPU and _is_large(graph, applications))
        donated = () if self.waits else graph.donated
        self.compiled = CompiledGraph(applications, leaves, slots, wanted, donated, self.device)
        self.run: Callable[..., Sequence[jax.Array]] | None = None
        self.maps = 4 + len(graph.steps)  # memory maps that its code takes, as counted on Linux
        self.spent = 0.0
        self.runs = 0
        self.summary: str | None = None
        self.handed: dict[int, weakref.ref[np.ndarray]] = {}

    @property
    def costs(self) -> Costs:
        return Costs(self.compiled.seconds, self.interpreted.seconds)

    @property
    def bytes_at_once(self) -> int:
        """The most bytes that its results take at one time, if each is kept until its last use."""
        return self.compiled.bytes_at_once

    @property
    def parts(self) -> tuple[int, int]:
        """Into how many segments the graph is cut, and how many of these differ."""
        return self.compiled.parts

    def is_worth_compiling(self) -> bool:
        """Whether one more interpreted run would raise the total cost of them to that of compiling."""
        spent = self.spent + self.interpreted.seconds
        # What compiling costs is worked out only then: for that, a graph is cut into segments.
        return spent >= PROGRAM_SECONDS and spent >= self.compiled.seconds

    def takes(self, position: int, array: np.ndarray) -> bool:
        """Whether to pass a NumPy array as it is, which copies it.

        For a small array this costs less than moving it to the device permanently, unless it is passed again.
        """
        last = self.handed.get(position)
        if array.nbytes > _MOST_HANDED or (last is not None and last() is array):
            return False
        self.handed[position] = weakref.ref(array)
        return True


_LARGE = 1 << 30  # bytes from which on a program may not fit into a CPU's memory
_SPARE = 8  # results of so many times what would be overwritten leave room for keeping that


def _is_large(graph: Graph, applications: Sequence[Application]) -> bool:
    """Whether a program takes so much that it overwrites nothing: if it fails, all that it was given is still there."""
    if sum([value.aval.nbytes for value in graph.nodes]) < _LARGE:
        return False
    arrays = [leaf.aval for leaf in graph.inputs if not leaf.aval.weak]
    overwritten = sum([arrays[position].nbytes for position in graph.donated])
    return bytes_at_once(applications, graph.wanted) >= max(_LARGE, _SPARE * overwritten)


# no cell: a cache, keyed by all that its entries depend on
_programs: dict[Hashable, Program] = {}
on_fork(_programs.clear)
if native is not None:
    on_fork(native.forget_programs)
_MOST_MAPS = 32_768  # of the 65,530 memory maps that Linux allows a process


def program_of(graph: Graph) -> Program:
    """The program for a graph, cached if one of the same structure has run before."""
    key = graph.key
    entry = _programs.get(key)
    if entry is None:
        entry = Program(graph)
        if graph.donated:  # what was interpreted while nothing was overwritten counts, too
            keeping = _programs.get(graph.key_with(()))
            if keeping is not None:
                entry.runs, entry.spent = keeping.runs, keeping.spent
        if entry.device is not CPU:
            metrics.count("CreateCompileHandles")
        held = entry.maps + sum([program.maps for program in _programs.values()])
        while _programs and held > _MOST_MAPS:
            held -= _programs.pop(next(iter(_programs))).maps
            if native is not None:
                native.forget_programs()
        entry = _programs.setdefault(key, entry)
    return entry


if native is not None:
    native.bind(Program=Program, CPU=CPU, ndarray=np.ndarray, program_seconds=PROGRAM_SECONDS)


class Run(NamedTuple):
    """What a program has computed: each application with the number of its recording, and the results."""

    applications: Sequence[tuple[Signature, int]]
    results: Sequence[AnyArray]


def execute(program: Program, graph: Graph, arrays: Sequence[AnyArray]) -> Sequence[AnyArray]:
    """Run a program on the arrays of its leaves. Compilations and interpreted programs are noted for `explain`."""
    if Flight.recorder is not None:
        with _in_flight(Flight.recorder, program, graph):
            return _as_span(program, graph, arrays)
    return _as_span(program, graph, arrays)


def _as_span(program: Program, graph: Graph, arrays: Sequence[AnyArray]) -> Sequence[AnyArray]:
    """`_measured`, as a span of the timeline."""
    if not Listeners.all:
        return _measured(program, graph, arrays)
    recorded = zip(graph.steps, graph.nodes, strict=True)
    applications = [(o.signature, v.time) for (o, inputs), v in recorded if not (inputs and inputs[0] < 0)]
    start = time.perf_counter_ns()
    results = _measured(program, graph, arrays)
    phase = Phase.INTERPRETING if program.run is None else Phase.RUNNING
    tell(phase, f"program of {len(applications)} operators", start, Run(applications, results))
    return results


def _measured(program: Program, graph: Graph, arrays: Sequence[AnyArray]) -> Sequence[AnyArray]:
    """`_execute`, with the metrics of devices."""
    if program.device is CPU:
        return _execute(program, graph, arrays)
    start, before = time.perf_counter_ns(), program.run
    result = _execute(program, graph, arrays)
    metrics.took("ExecuteTime", start)
    metrics.count("Interpreted" if program.run is None else "UncachedCompile" if before is None else "CachedCompile")
    return result


def _execute(program: Program, graph: Graph, arrays: Sequence[AnyArray]) -> Sequence[AnyArray]:
    # Rent or buy: a program is interpreted until that has cost as much as compiling it would have.
    tier = tier_of(program.device)
    if tier == "interpreted" and not program.compiled.collectives:
        return program.interpreted(_numbered(graph, arrays))
    if tier == "auto" and program.run is None and not program.is_worth_compiling():
        if not program.runs:
            explain.note_interpreted(user_site(), program, graph.steps)
        program.runs += 1
        program.spent += program.interpreted.seconds
        return program.interpreted(_numbered(graph, arrays))
    operands, packs = _on_device(graph, arrays, program.takes), packs_of(graph.inputs)
    # Finalizers of a user's, which may read what the program is about to overwrite, wait until its results are there;
    # but not where the program itself runs code of a user's.
    pause = nullcontext() if program.calls_back else collector_paused
    if program.run is not None:
        with pause:
            return program.run(*packs, *operands)
    site = user_site()
    start = time.perf_counter()
    run = program.compiled.run()
    with _announced(site, len(graph.steps)), compiling(site), pause:
        result = run(*packs, *operands)
    program.run = run  # only now: a compilation that was interrupted or has failed is tried again
    seconds = time.perf_counter() - start
    explain.note(site, seconds, program, graph.steps)
    if program.device is not CPU:
        metrics.sample("CompileTime", 1e9 * seconds)
    return result


def _numbered(graph: Graph, arrays: Sequence[AnyArray]) -> list[AnyArray]:
    """The leaves as arrays for the interpreter, by position: NumPy's on the CPU."""
    on_host = graph.steps[0][0].aval.device is CPU
    rest = iter(map(np.asarray, arrays) if on_host else _on_device(graph, arrays))
    return [np.asarray(leaf.number, leaf.aval.dtype.numpy) if leaf.aval.weak else next(rest) for leaf in graph.inputs]


def _on_device(
    graph: Graph, arrays: Sequence[AnyArray], takes: Callable[[int, AnyArray], bool] = lambda position, array: False
) -> Sequence[AnyArray]:
    """The arrays of the leaves. NumPy arrays are moved to the device, except those that the program `takes`."""
    if np.ndarray not in map(type, arrays):
        return arrays
    operands = list(arrays)
    leaves = [leaf for leaf in graph.inputs if not leaf.aval.weak]
    for at, leaf in enumerate(leaves):
        if type(operands[at]) is np.ndarray and not takes(at, operands[at]):
            if leaf.on_host is not None:
                place(leaf)
                operands[at] = leaf.content
            else:  # in doubt
                operands[at] = placed(operands[at], leaf.aval.device)
    return operands


@contextmanager
def _in_flight(recorder: FlightRecorder, program: Program, graph: Graph) -> Generator[None]:
    """Keep in the flight recorder that a program runs."""
    if program.summary is None:
        program.summary = operators_text([output for output, _ in graph.steps])
    kind = "run" if program.run is not None else "first run" if not program.runs else "interpreted run"
    end = recorder.program(kind, program.summary, user_site())
    succeeded = False
    try:
        yield
        succeeded = True
    finally:
        end(succeeded)


def operators_text(outputs: Sequence[Output], most: int = 6) -> str:
    """How many operators have these outputs, and the last ones of them, with the types of their inputs."""
    last = ", ".join([repr(output.signature) for output in outputs[-most:]])
    return f"{len(outputs)} operators{', the last ones' if len(outputs) > most else ''}: {last}"


@contextmanager
def _announced(site: str, operators: int) -> Generator[None]:
    """Print on stderr, while it runs, that a compilation is slow."""

    def say() -> None:
        sys.stderr.write(f"weft: compiling {operators} operators for {site} …\n")

    timer = threading.Timer(config.SLOW_COMPILE_SECONDS, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
