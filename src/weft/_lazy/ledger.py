"""How much memory the arrays of a device take, and took at most since somebody has asked first.

XLA tells it for accelerators, except that its peaks count from the start of the process. For CPUs it tells nothing, so
the arrays of values are counted: all of them when somebody asks, and those of each program that runs afterwards. What a
program needs in between is what its results take if each is kept until its last use.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from weft._base.device import device
from weft._base.forks import renew_in_forks
from weft._base.site import Noting, user_site
from weft._base.types import Arg
from weft._lazy.living import array_in_memory, living_values, owner_of
from weft._lazy.runtime import jax_device
from weft._lazy.value import Value

_MOST_RUNS = 4096


class MeasuredRun(NamedTuple):
    """A program that has run: when, for which line of the user's, the bytes alive after it, and its peak."""

    seconds: float
    site: str
    operators: int
    nbytes: int
    peak: int


class Ledger:
    """The memory of a device, from when it is made.

    peak   the most bytes at one time since then, or since `reset`
    runs   the last programs, noted only while lines are
    """

    def __init__(self, target: device) -> None:
        self.device = target
        self.peak = 0
        self._last_peak = 0
        self.runs: deque[MeasuredRun] = deque(maxlen=_MOST_RUNS)
        self._held: dict[int, tuple[weakref.ref[Arg], int]] = {}  # arrays by identity, where XLA does not count
        self._xlas_peak = -1  # when the peak was reset
        self.current()

    def current(self) -> int:
        """The bytes now."""
        stats = xlas_figures(self.device)
        if stats:
            self._meet(stats["bytes_in_use"], stats.get("peak_bytes_in_use", 0))
            return stats["bytes_in_use"]
        self._hold([x for x in living_values() if x.aval.device == self.device])
        self.peak = max(self.peak, total := self._total())
        return total

    def reset(self) -> None:
        """Let the peak be what there is now."""
        self._xlas_peak = xlas_figures(self.device).get("peak_bytes_in_use", 0)
        self.peak = 0
        self.peak = self.current()

    def ran(self, at_once: int, inputs: Iterable[Value], results: Iterable[Value]) -> None:
        """Take a program into account that has just run, and has had results of this many bytes at once."""
        stats = xlas_figures(self.device)
        if stats:
            self._meet(stats["bytes_in_use"], stats.get("peak_bytes_in_use", 0))
            self._last_peak = stats["bytes_in_use"]
        else:
            self._hold(inputs)
            self._last_peak = self._total() + at_once
            self.peak = max(self.peak, self._last_peak)
            self._hold(results)

    def note(self, operators: int) -> None:
        """Note what is left of the program that has run last, if lines are noted."""
        if Noting.on:
            now = self._total() if self._held else xlas_figures(self.device).get("bytes_in_use", 0)
            self.runs.append(MeasuredRun(time.perf_counter(), user_site(), operators, now, max(now, self._last_peak)))

    def _meet(self, current: int, peak: int) -> None:
        """XLA's peak counts if it has grown since the last reset, else the figures that were read since."""
        self.peak = peak if peak > self._xlas_peak else max(self.peak, current)

    def _total(self) -> int:
        return sum([nbytes for _, nbytes in list(self._held.values())])

    def _hold(self, values: Iterable[Value]) -> None:
        """Count the arrays of values from now on until they are freed."""
        for value in values:
            owner = owner_of(array_in_memory(value))
            if owner is not None and id(owner) not in self._held:
                self._held[id(owner)] = weakref.ref(owner, partial(self._drop, id(owner))), owner.nbytes

    def _drop(self, key: int, reference: object) -> None:
        del reference
        self._held.pop(key, None)


_lock = threading.Lock()
renew_in_forks(globals(), "_lock")
# no cell: only texts and reports depend on it
ledgers: dict[device, Ledger] = {}
"""Those that somebody has asked for; programs tell them what they do."""


def ledger_of(target: device) -> Ledger:
    """The ledger of a device, which is opened when it is asked for first; `RuntimeError` if there is no such device."""
    with _lock:
        if target not in ledgers:
            ledgers[target] = Ledger(target)
        return ledgers[target]


def xlas_figures(target: device) -> dict[str, int]:
    """What XLA tells of a device's memory, in bytes by its own names; nothing for CPUs."""
    return {} if target.type == "cpu" else jax_device(target).memory_stats() or {}


def note_run(at_once: int, inputs: Iterable[Value], results: Sequence[Value]) -> None:
    """Tell the device's ledger of a program that has run, and whose values are all still there."""
    ledger = ledgers.get(results[0].aval.device)
    if ledger is not None:
        ledger.ran(at_once, inputs, results)


def note_alive(target: device, operators: int) -> None:
    """Tell the device's ledger that what a program does not leave is gone."""
    ledger = ledgers.get(target)
    if ledger is not None:
        ledger.note(operators)
