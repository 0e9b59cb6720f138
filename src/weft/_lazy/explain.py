"""What was compiled, where, for how long, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from weft._lazy.infer import Many
from weft._lazy.signature import Output


@dataclass(frozen=True, slots=True)
class Compilation:
    """One compilation: the user's line that needed the values, seconds, operators, and what was new."""

    site: str
    seconds: float
    operators: int
    cause: str

    def __str__(self) -> str:
        return f"{self.site}  {self.seconds:.2f} s  {self.operators} operators  {self.cause}"


class Explanation(list[Compilation]):
    """The compilations so far, oldest first. Prints as one line each."""

    def __str__(self) -> str:
        total = sum(c.seconds for c in self)
        return "\n".join([f"{len(self)} compilations, {total:.2f} s", *map(str, self)])

    __repr__ = __str__


_Steps = Sequence[tuple[Output, tuple[int, ...]]]
_MOST = 1000
_log: list[tuple[Compilation, _Steps]] = []


def explain() -> Explanation:
    """Every compilation of this process (the last 1,000), with the difference to the nearest earlier graph."""
    return Explanation(entry for entry, _ in _log)


def note(site: str, seconds: float, steps: _Steps) -> None:
    """Remember one compilation."""
    entry = Compilation(site, seconds, len(steps), _cause(site, steps))
    if len(_log) >= _MOST:
        del _log[0]
    _log.append((entry, steps))


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
        return f"{len(steps)} operators where {entry.site} had {len(nearest)}"
    return _difference(nearest[at], steps[at], entry.site)


def _common(a: _Steps, b: _Steps) -> int:
    for at, (x, y) in enumerate(zip_longest(a, b)):
        if x != y:
            return at
    return len(a)


def _difference(old: Any, new: Any, site: str) -> str:
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
