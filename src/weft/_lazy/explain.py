"""Explanations: what was compiled, where, for how long and why; and what is interpreted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import zip_longest
from typing import ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary

import jax

from weft._base.site import user_site
from weft._base.types import Arg
from weft._lazy.interpreter import Costs
from weft._lazy.signature import Output, operators_of
from weft.ops._kinds import Many

P = ParamSpec("P")
T = TypeVar("T")


class _Program(Protocol):
    """What is told of a program (`_lazy/program.py`)."""

    runs: int
    spent: float
    run: Callable[..., Sequence[jax.Array]] | None

    @property
    def costs(self) -> Costs: ...
    @property
    def parts(self) -> tuple[int, int]: ...


@dataclass(frozen=True, slots=True)
class Compilation:
    """One compilation: the user's line that needed the values, its seconds, the number of operators, and what was new.

    runs                how often the graph was interpreted before
    segments, programs  the number of segments of a repetitive graph, and how many of them differ
    native              the number of operators that a native body computes
    """

    site: str
    seconds: float
    operators: int
    cause: str
    runs: int = 0
    segments: int = 1
    programs: int = 1
    native: int = 0

    def __str__(self) -> str:
        cut = f" in {self.segments} segments, {self.programs} different" if self.segments > 1 else ""
        bodies = f", {self.native} of them native" if self.native else ""
        earned = f"; interpreted {_times(self.runs)} before" if self.runs else ""
        size = f"{_count(self.operators, 'operator')}{bodies}{cut}"
        return f"{self.site}  {self.seconds:.2f} s  {size}  {self.cause}{earned}"


@dataclass(frozen=True, slots=True)
class Interpretation:
    """A graph that is interpreted: the user's line that first needed its values, its operators, and its runs.

    spent, price   estimated seconds: the cost of interpreting it so far, and the cost at which it is compiled
    each           the amount that a run adds to `spent`; 0 if a compiled run would not be faster
    """

    site: str
    operators: int
    runs: int
    spent: float
    price: float
    each: float

    def __str__(self) -> str:
        why = f"{1e3 * self.spent:.1f} of {1e3 * self.price:.0f} ms spent" if self.each else "no slower than compiled"
        return f"{self.site}  {_count(self.operators, 'operator')}  interpreted {_times(self.runs)}, {why}"


@dataclass(frozen=True, slots=True)
class Inference:
    """What one line of the program has spent on finding out what operators compute for new types and arguments.

    signatures  how many combinations of an operator, its arguments and types were new, with their derivatives
    """

    site: str
    signatures: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.site}  {_count(self.signatures, 'signature')}  {self.seconds:.2f} s"


class Explanation(list[Compilation]):
    """The compilations so far, the oldest first; `interpreted` are the graphs that are not compiled.

    `inferred` are the lines of the program that have used operators with new types or arguments, the longest first. It
    prints one line for each compilation, one for each line of the program that needs interpreted graphs, and one for
    each of the lines that have spent most on inference.
    """

    def __init__(
        self,
        compilations: Sequence[Compilation],
        interpreted: Sequence[Interpretation],
        inferred: Sequence[Inference] = (),
    ) -> None:
        super().__init__(compilations)
        self.interpreted = list(interpreted)
        self.inferred = sorted(inferred, key=lambda entry: -entry.seconds)

    def __str__(self) -> str:
        total = sum(c.seconds for c in self)
        lines = [f"{_count(len(self), 'compilation')}, {total:.2f} s", *map(str, self)]
        if self.interpreted:
            sites: dict[str, list[Interpretation]] = {}
            for graph in self.interpreted:
                sites.setdefault(graph.site, []).append(graph)
            lines.append(f"{_count(len(self.interpreted), 'graph')} interpreted")
            lines += [str(max(graphs, key=_share)) + _further(len(graphs) - 1) for graphs in sites.values()]
        if self.inferred:
            count = sum([entry.signatures for entry in self.inferred])
            total = sum([entry.seconds for entry in self.inferred])
            lines.append(f"{_count(count, 'signature')} inferred, {total:.2f} s")
            lines += map(str, self.inferred[:_MOST_LINES])
        return "\n".join(lines)

    __repr__ = __str__


def _share(graph: Interpretation) -> float:
    """The share of its price that is spent."""
    return graph.spent / graph.price


def _further(count: int) -> str:
    return f"; and {_count(count, 'further graph')}" if count else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


_Steps = Sequence[tuple[Output, tuple[int, ...]]]
_MOST = 1000
_MOST_LINES = 5
_MOST_SITES = 4096
# no cell: only texts and reports depend on it
_log: list[tuple[Compilation, _Steps]] = []
# no cell: only texts and reports depend on it
_interpreted: WeakKeyDictionary[_Program, tuple[str, int]] = WeakKeyDictionary()


def explain() -> Explanation:
    """What this process has computed: every compilation (the last 1,000), and what is interpreted.

    A compilation tells how its graph differs from the nearest earlier one, which shows why it was necessary. Graphs so
    small that they are computed without a program are not listed.
    """
    interpreted = [(device, program) for program, device in _interpreted.items() if program.run is None]
    return Explanation(
        [entry for entry, _ in _log],
        [
            Interpretation(site, operators, p.runs, p.spent, p.costs.compiling, p.costs.interpreting)
            for (site, operators), p in interpreted
        ],
        [Inference(site, count, seconds) for site, (count, seconds) in _inferred.items()],
    )


# no cell: only texts and reports depend on it
_inferred: dict[str, tuple[int, float]] = {}
# no cell: only texts and reports depend on it
_inner = threading.local()


def inferring(function: Callable[P, T]) -> Callable[P, T]:
    """Note what a function takes that makes signatures; one that it makes on the way is a part of its own."""

    @wraps(function)
    def measured(*args: P.args, **kwargs: P.kwargs) -> T:
        if getattr(_inner, "runs", False):
            return function(*args, **kwargs)
        _inner.runs = True
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            _inner.runs = False
            _note_inference(user_site(), time.perf_counter() - start)

    return measured


def _note_inference(site: str, seconds: float) -> None:
    if site not in _inferred and len(_inferred) >= _MOST_SITES:
        del _inferred[next(iter(_inferred))]
    count, before = _inferred.get(site, (0, 0.0))
    _inferred[site] = count + 1, before + seconds


def note_interpreted(site: str, program: _Program, steps: _Steps) -> None:
    """Record that a program is interpreted."""
    _interpreted[program] = site, _operators(steps)[0]


def note(site: str, seconds: float, program: _Program, steps: _Steps) -> None:
    """Record a compilation."""
    segments, programs = program.parts
    operators, native = _operators(steps)
    entry = Compilation(site, seconds, operators, _cause(site, steps), program.runs, segments, programs, native)
    if len(_log) >= _MOST:
        del _log[0]
    _log.append((entry, steps))


def _operators(steps: _Steps) -> tuple[int, int]:
    """The number of operators, those of captured functions included, and of those that native bodies compute."""
    return operators_of([output.signature for output, inputs in steps if not (inputs and inputs[0] < 0)])


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _cause(site: str, steps: _Steps) -> str:
    """How the graph differs from the nearest earlier one: of the same line if any, with the longest common start."""
    rivals = [(e, s) for e, s in _log if e.site == site] or _log[-32:]
    if not rivals:
        return "the first graph"
    entry, nearest = max(rivals, key=lambda rival: _common(rival[1], steps))
    at = _common(nearest, steps)
    if at == len(steps) == len(nearest):
        return f"other results are kept, or other buffers given away, than at {entry.site}"
    if at >= len(nearest) or at >= len(steps):
        return f"{_count(_operators(steps)[0], 'operator')} where {entry.site} had {entry.operators}"
    return _difference(nearest[at], steps[at], entry.site)


def _common(a: _Steps, b: _Steps) -> int:
    for at, (x, y) in enumerate(zip_longest(a, b)):
        if x != y:
            return at
    return len(a)


def _difference(old: Arg, new: Arg, site: str) -> str:
    before, now = old[0].signature, new[0].signature
    if before.name != now.name:
        return f"{now.name} where {site} had {before.name}"
    for position, (a, b) in enumerate(zip(before.avals, now.avals, strict=False)):
        if a is not b:
            return f"{now.name}: input {position} is {b}, was {a}"
    if before.call is not None and now.call is not None:
        for param, a, b in zip(now.call.op.params, before.call.static, now.call.static, strict=False):
            if a != b and not (isinstance(a, Many) and isinstance(b, Many)):
                return f"{now.name}: {param.name} is {b!r}, was {a!r}"
    return f"{now.name}: takes other operators' results than at {site}"
