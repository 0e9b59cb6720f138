"""What a worker does, in numbers that its launcher can read at any time: steps, waits, compilations.

The numbers are in memory that the agent of `weft run` shares with the worker, so they are read without the worker's
help, whatever it hangs in. Elsewhere there is no such memory, and each place that would write tests that first.
"""

from __future__ import annotations

import os
import threading
from time import monotonic
from typing import NamedTuple

_NUMBERS = (
    "attached",  # when the worker began to write here. Times are of `time.monotonic`, which a host's processes share
    "steps",  # optimizer steps
    "step_ended",
    "step_seconds",  # between the ends of the last two steps
    "batches",  # of data loaders
    "progress",  # the time of the last step, batch, report or compilation
    "tokens",
    "tokens_ended",  # the time of the last report
    "tokens_rate",  # per second, between the last two reports
    "samples",
    "samples_ended",
    "samples_rate",
    "compilations",
    "compile_seconds",
    "compile_since",  # 0 where nothing is compiled now
    "compile_text",
    "data_seconds",  # waited, in total
    "collectives_seconds",
    "calls_seconds",
    "waits_for",  # 0, or 1 + the position in `WAITS`
    "wait_since",
    "wait_text",
    "calls_served",
    "device_bytes",
    "device_limit",
)
_AT = {name: at for at, name in enumerate(_NUMBERS)}
WAITS = DATA, COLLECTIVES, CALLS = "data", "collectives", "calls"
"""What a thread can wait for: batches of a loader, other ranks of a group, answers to remote calls."""

_MOST_VALUES = 16  # reported under names of their own
_TEXTS = 128  # of names and lines, each written once; 0 stands for those that have no space
_LONGEST = 56  # bytes of a text
_VALUES_AT = len(_NUMBERS)
_TEXTS_AT = 8 * (_VALUES_AT + 2 * _MOST_VALUES)  # behind pairs of a name's text and its value
SIZE = _TEXTS_AT + _TEXTS * _LONGEST
"""The bytes of the memory."""

_ATTACHED, _STEPS, _STEP_ENDED, _STEP_SECONDS = (_AT[name] for name in _NUMBERS[:4])
_BATCHES, _PROGRESS = _AT["batches"], _AT["progress"]
_COMPILATIONS, _COMPILE_SECONDS, _COMPILE_SINCE, _COMPILE_TEXT = (
    _AT[name] for name in ("compilations", "compile_seconds", "compile_since", "compile_text")
)
_WAITS_FOR, _WAIT_SINCE, _WAIT_TEXT = _AT["waits_for"], _AT["wait_since"], _AT["wait_text"]
_WAITED = {kind: (1 + at, _AT[f"{kind}_seconds"]) for at, kind in enumerate(WAITS)}
_COUNTED = {kind: (_AT[kind], _AT[f"{kind}_ended"], _AT[f"{kind}_rate"]) for kind in ("tokens", "samples")}
_CALLS_SERVED, _DEVICE_BYTES, _DEVICE_LIMIT = _AT["calls_served"], _AT["device_bytes"], _AT["device_limit"]
_MEMORY_SECONDS = 1.0  # between looks at the memory of devices


class Activity:
    """The writer of a worker's numbers.

    Nothing is locked. What a thread waits for is counted for one thread alone, the one that trains: the main thread, or
    the one that has ended the last step. So waits never add up to more than the time.
    """

    def __init__(self, memory: memoryview) -> None:
        self._numbers = memory[:_TEXTS_AT].cast("d")
        self._texts = memory[_TEXTS_AT:SIZE]
        self._text_numbers: dict[str, int] = {}
        self._values: dict[str, int] = {}
        self._stepped: set[int] = set()
        self._thread = threading.main_thread().ident
        self._memory_due = 0.0
        self._numbers[_ATTACHED] = monotonic()

    # --- steps, batches and reports ---

    def step(self, optimizer: int) -> None:
        """An optimizer, known by this number, has stepped.

        A program may have several. A step of the program ends with the first optimizer's, and the next one when any of
        them steps again.
        """
        self._train_here()
        if self._stepped and optimizer not in self._stepped:
            self._stepped.add(optimizer)
            return
        self._stepped = {optimizer}
        numbers, now = self._numbers, monotonic()
        if numbers[_STEPS]:
            numbers[_STEP_SECONDS] = now - numbers[_STEP_ENDED]
        numbers[_STEP_ENDED] = numbers[_PROGRESS] = now
        numbers[_STEPS] += 1

    def _train_here(self) -> None:
        """From now on, this thread's waits count."""
        if self._thread == (ident := threading.get_ident()):
            return
        self._thread = ident
        if kind := self._numbers[_WAITS_FOR]:
            self.wait_ends(WAITS[int(kind) - 1], self._numbers[_WAIT_SINCE])

    def batch(self) -> None:
        """A loader has given a batch."""
        self._numbers[_BATCHES] += 1
        self._numbers[_PROGRESS] = monotonic()

    def count(self, kind: str, amount: float) -> None:
        """So many "tokens" or "samples" more have been worked on."""
        total, ended, rate = _COUNTED[kind]
        numbers, now = self._numbers, monotonic()
        if numbers[ended]:
            numbers[rate] = amount / max(now - numbers[ended], 1e-9)
        numbers[ended] = numbers[_PROGRESS] = now
        numbers[total] += amount

    def value(self, name: str, value: float) -> bool:
        """Show a value under a name of the program; False if there is no space for one more name."""
        at = self._values.get(name)
        if at is None:
            if len(self._values) == _MOST_VALUES:
                return False
            at = self._values[name] = _VALUES_AT + 2 * len(self._values)
            self._numbers[at] = self._text(name)
        self._numbers[at + 1] = value
        self._numbers[_PROGRESS] = monotonic()
        return True

    # --- waits and compilations ---

    def wait_begins(self, kind: str, text: str) -> float:
        """The training thread begins to wait: returns the time. 0 in another thread, and within another wait."""
        numbers = self._numbers
        if numbers[_WAITS_FOR] or threading.get_ident() != self._thread:
            return 0.0
        numbers[_WAIT_TEXT] = self._text(text)
        now = numbers[_WAIT_SINCE] = monotonic()
        numbers[_WAITS_FOR] = _WAITED[kind][0]
        return now

    def wait_ends(self, kind: str, since: float) -> None:
        """The wait that has begun at this time is over, unless it has been ended because another thread trains."""
        numbers = self._numbers
        if since == numbers[_WAIT_SINCE]:
            numbers[_WAITS_FOR] = numbers[_WAIT_SINCE] = 0
            numbers[_WAITED[kind][1]] += monotonic() - since

    def compilation_begins(self, site: str) -> None:
        """A program is being compiled for a line of the user."""
        self._numbers[_COMPILE_TEXT] = self._text(site)
        self._numbers[_COMPILE_SINCE] = monotonic()

    def compilation_ends(self, *, failed: bool) -> None:
        """It is compiled, or cannot be."""
        numbers, now = self._numbers, monotonic()
        since, numbers[_COMPILE_SINCE] = numbers[_COMPILE_SINCE], 0
        numbers[_COMPILE_SECONDS] += now - since
        numbers[_COMPILATIONS] += not failed
        numbers[_PROGRESS] = now

    # --- what else there is ---

    def served(self, calls: int) -> None:
        """So many calls of other workers have been served; the caller lets one thread at a time do this."""
        self._numbers[_CALLS_SERVED] += calls

    def wants_memory(self) -> bool:
        """Whether it is time to look at the memory of devices again."""
        now = monotonic()
        if now < self._memory_due:
            return False
        self._memory_due = now + _MEMORY_SECONDS
        return True

    def device_memory(self, used: int, limit: int) -> None:
        """The bytes in use on this worker's devices, and those that they have."""
        self._numbers[_DEVICE_BYTES], self._numbers[_DEVICE_LIMIT] = used, limit

    def _text(self, text: str) -> int:
        """The number of a text in the memory; of a long one, the end is kept."""
        number = self._text_numbers.get(text)
        if number is None:
            if len(self._text_numbers) + 1 == _TEXTS:
                return 0
            number = self._text_numbers[text] = len(self._text_numbers) + 1
            content = text.encode()[-_LONGEST:]
            self._texts[number * _LONGEST : number * _LONGEST + len(content)] = content
        return number


class _Process:
    activity: Activity | None = None


process = _Process()
"""`process.activity` is that of this process; None unless `weft run` has started it."""


def _forget() -> None:
    process.activity = None


os.register_at_fork(after_in_child=_forget)  # what a child does is not what the worker does


class waiting:
    """A block in which the thread waits for other processes, or for data."""

    __slots__ = ("_activity", "_kind", "_since", "_text")

    def __init__(self, kind: str, text: str) -> None:
        self._kind, self._text = kind, text

    def __enter__(self) -> None:
        self._activity = activity = process.activity
        if activity is not None:
            self._since = activity.wait_begins(self._kind, self._text)

    def __exit__(self, *_: object) -> None:
        if self._activity is not None and self._since:
            self._activity.wait_ends(self._kind, self._since)


class compiling:
    """A block in which a program is compiled for a line of the user."""

    __slots__ = ("_activity", "_site")

    def __init__(self, site: str) -> None:
        self._site = site

    def __enter__(self) -> None:
        self._activity = process.activity
        if self._activity is not None:
            self._activity.compilation_begins(os.path.basename(self._site))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._activity is not None:
            self._activity.compilation_ends(failed=kind is not None)


class Now(NamedTuple):
    """What a worker does at the moment, and for how many seconds."""

    text: str
    seconds: float


class Reading(NamedTuple):
    """The numbers of a worker at a time; waits that are under way are included in the seconds."""

    numbers: dict[str, float]
    waits_for: str | None
    wait: Now | None
    compilation: Now | None
    reported: dict[str, float]


def read(memory: memoryview, now: float) -> Reading:
    """Read what a worker has written; `now` is the time of `time.monotonic`."""
    cells = list(memory[:_TEXTS_AT].cast("d"))
    numbers: dict[str, float] = dict(zip(_NUMBERS, cells, strict=False))

    def text(number: float) -> str:
        at = _TEXTS_AT + int(number) * _LONGEST
        return bytes(memory[at : at + _LONGEST]).rstrip(b"\0").decode(errors="replace") if number else ""

    kind = wait = compilation = None
    if numbers["waits_for"]:
        kind = WAITS[int(numbers["waits_for"]) - 1]
        wait = Now(text(numbers["wait_text"]), max(0.0, now - numbers["wait_since"]))
        numbers[f"{kind}_seconds"] += wait.seconds
    if numbers["compile_since"]:
        compilation = Now(text(numbers["compile_text"]), max(0.0, now - numbers["compile_since"]))
        numbers["compile_seconds"] += compilation.seconds
    pairs = zip(cells[_VALUES_AT::2], cells[_VALUES_AT + 1 :: 2], strict=True)
    reported = {text(name): value for name, value in pairs if name}
    return Reading(numbers, kind, wait, compilation, reported)
