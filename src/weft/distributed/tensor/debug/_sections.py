"""What a program has sent and computed, by module and pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from weft._lazy.aval import Aval
from weft._tensor.tensor import Tensor

PASSES = ("forward", "backward")


@dataclass(frozen=True)
class Sent:
    """A collective: the types of the tensors that this process gives to it, their bytes, and the user's line."""

    name: str
    types: tuple[Aval, ...]
    nbytes: int
    site: str


@dataclass(frozen=True)
class SentOperation:
    """An operator that was recorded, and the user's line.

    distributed   whether it works on distributed tensors, or is the derivative of one that does
    trivial       whether it only moves elements
    """

    name: str
    inputs: tuple[Aval, ...]
    results: tuple[Aval, ...]
    site: str
    distributed: bool
    trivial: bool

    @property
    def noise_level(self) -> int:
        """The level from which on it is reported."""
        return 3 if self.trivial else 1 if self.distributed else 2


@dataclass
class ReportSection:
    """What a module has done by itself, in the order of time, and the modules that it has called.

    calls       how often its caller has called it
    forward     what it has done in forward passes
    backward    the same in backward passes
    """

    name: str
    kind: str = ""
    calls: int = 0
    parameters: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    forward: list[Sent | SentOperation] = field(default_factory=list[Sent | SentOperation])
    backward: list[Sent | SentOperation] = field(default_factory=list[Sent | SentOperation])
    children: dict[str, ReportSection] = field(default_factory=dict["str", "ReportSection"])

    def walk(self) -> Iterator[ReportSection]:
        """The section itself and all below it, callers first."""
        yield self
        for child in self.children.values():
            yield from child.walk()

    def sent(self, *passes: str) -> list[Sent]:
        """The collectives of the module and of those that it has called, in these passes."""
        return [
            event
            for section in self.walk()
            for which in passes
            for event in getattr(section, which)
            if isinstance(event, Sent)
        ]

    def operations(self, which: str, noise_level: int) -> list[SentOperation]:
        """The module's own operators in a pass, as far as they are reported at a noise level."""
        return [e for e in getattr(self, which) if isinstance(e, SentOperation) and e.noise_level <= noise_level]


def counts(sent: list[Sent]) -> Counter[str]:
    """How often each collective was called."""
    return Counter(event.name for event in sent)


def nbytes(sent: list[Sent]) -> Counter[str]:
    """The bytes that this process has given to each collective."""
    total: Counter[str] = Counter()
    for event in sent:
        total[event.name] += event.nbytes
    return total
