"""The flight recorder: the last collectives and programs of a process, in a file that outlives it.

The file is mapped into memory, so an entry costs about as much as a line of text, and whoever has the file can read it
whatever has become of the process: ended by an exception or a signal, killed, or stopped. `flight_report` reads it.
"""

from __future__ import annotations

import atexit
import faulthandler
import fcntl
import logging
import mmap
import os
import signal
import struct
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from enum import IntEnum
from itertools import count
from pathlib import Path
from typing import NamedTuple, TextIO, TypeVar

from weft._base.files import followed, open_own
from weft.errors import ValueRangeError

_log = logging.getLogger(__name__)

RECORDING, STACKS = "flight.bin", "stacks.txt"
"""The names of a rank's files: the recording, and the stacks of its threads when a signal has ended it."""

R = TypeVar("R")

_HEADER = struct.Struct("<8sqqqqdd")  # magic, process, rank, slots of collectives and programs, start and end
_END_AT = _HEADER.size - 8
_SLOT = struct.Struct("<QdddBH")  # number of the entry, times of its call, start and end, state, length of its text
_SLOT_BYTES = 1024
_NOTE_BYTES = 64  # at the end of a slot, written when the entry ends
_TEXT_BYTES = _SLOT_BYTES - _SLOT.size - _NOTE_BYTES
_MAGIC = b"WEFTFLT2"
_PROGRAMS = 64
_BETWEEN = "\x1f"  # fields of a text


class State(IntEnum):
    """What has become of an entry."""

    WAITING = 0
    RUNNING = 1
    DONE = 2
    FAILED = 3


class Entry(NamedTuple):
    """One collective or program. Times are in seconds since the epoch, 0 for what has not happened.

    missing   the ranks that have made a collective fail, as far as this rank knows
    """

    number: int
    called: float
    started: float
    ended: float
    state: State
    fields: tuple[str, ...]
    missing: tuple[int, ...]


class Recording(NamedTuple):
    """What a file holds: entries are in order of their calls.

    ended   when the program ended, by itself or by an exception; 0 until then, and where a signal has ended it
    """

    process: int
    rank: int
    started: float
    ended: float
    collectives: list[Entry]
    programs: list[Entry]


class _Ring:
    """A part of the file whose slots are used in turn."""

    def __init__(self, file: mmap.mmap, at: int, slots: int) -> None:
        self._file, self._at, self._slots = file, at, slots
        self._next = count(1).__next__

    def begin(self, text: str, state: State) -> int:
        """Write an entry; returns where it stands."""
        number, now = self._next(), time.time()
        place = self._at + number % self._slots * _SLOT_BYTES
        data = text.encode("utf-8", "replace")[:_TEXT_BYTES]
        self._file[place + _SLOT.size : place + _SLOT.size + len(data)] = data
        self._file[place + _SLOT_BYTES - _NOTE_BYTES] = 0
        _SLOT.pack_into(self._file, place, number, now, now if state is State.RUNNING else 0.0, 0.0, state, len(data))
        return place

    def set_started(self, place: int) -> None:
        """Note that an entry is running: one that has waited, or one that goes on after an interrupt had ended it."""
        started, ended = struct.unpack_from("<dd", self._file, place + 16)
        if not started or ended:
            struct.pack_into("<dd", self._file, place + 16, started or time.time(), 0.0)
        self._file[place + 32] = State.RUNNING

    def set_ended(self, place: int, state: State, note: str = "") -> None:
        """Note the end of an entry."""
        if note:
            data = note.encode()[: _NOTE_BYTES - 1]
            end = place + _SLOT_BYTES
            self._file[end - _NOTE_BYTES : end] = data.ljust(_NOTE_BYTES, b"\0")
        struct.pack_into("<d", self._file, place + 24, time.time())
        self._file[place + 32] = state


class FlightRecorder:
    """Records into a new file in a folder, which must exist. `BlockingIOError` if another process records there."""

    def __init__(self, folder: Path, rank: int, collectives: int) -> None:
        size = _HEADER.size + (collectives + _PROGRAMS) * _SLOT_BYTES
        self._descriptor = open_own(folder / RECORDING, os.O_RDWR)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, 0)
            os.posix_fallocate(self._descriptor, 0, size)  # a full disk is told now, and not by SIGBUS at a write
            file = mmap.mmap(self._descriptor, size)
        except BaseException:
            os.close(self._descriptor)
            raise
        self._file = file
        self._collectives = _Ring(file, _HEADER.size, collectives)
        self._programs = _Ring(file, _HEADER.size + collectives * _SLOT_BYTES, _PROGRAMS)
        self._numbers: Counter[str] = Counter()
        weakref.finalize(self, os.close, self._descriptor)
        _HEADER.pack_into(file, 0, _MAGIC, os.getpid(), rank, collectives, _PROGRAMS, time.time(), 0.0)

    def end(self) -> None:
        """Note that the program has ended."""
        struct.pack_into("<d", self._file, _END_AT, time.time())

    def collective(
        self,
        operation: str,
        group: str,
        ranks: Sequence[int],
        types: Sequence[object],
        site: str,
        call: Callable[..., R],
    ) -> Callable[..., R]:
        """Record a collective that is called now; returns `call`, which tells when it runs and how it ends.

        The collectives of a group are numbered, from 1, in the order of the calls, so that ranks can be compared.
        """
        self._numbers[group] += 1
        text = _exchange_text(operation, group, self._numbers[group], ranks, types, site)
        return self._ending(self._collectives.begin(text, State.WAITING), call)

    def message(
        self,
        operation: str,
        group: str,
        ranks: Sequence[int],
        types: Sequence[object],
        site: str,
        wait: Callable[..., R],
    ) -> Callable[..., R]:
        """Record a message that is sent or received from now on, until what this returns, `wait`, has returned.

        Messages have the number 0.
        """
        text = _exchange_text(operation, group, 0, ranks, types, site)
        return self._ending(self._collectives.begin(text, State.RUNNING), wait)

    def _ending(self, place: int, call: Callable[..., R]) -> Callable[..., R]:
        ring = self._collectives

        def recorded(*args: object) -> R:
            ring.set_started(place)
            try:
                result = call(*args)
            except BaseException as error:
                ring.set_ended(place, State.FAILED, ",".join(map(str, getattr(error, "missing", ()))))
                raise
            ring.set_ended(place, State.DONE)
            return result

        return recorded

    def program(self, kind: str, operators: str, site: str) -> Callable[[bool], None]:
        """Record that a program is compiled, or runs; returns what tells its end, and whether it has succeeded."""
        ring = self._programs
        place = ring.begin(f"{kind}{_BETWEEN}{operators}{_BETWEEN}{site[-200:]}", State.RUNNING)
        return lambda succeeded: ring.set_ended(place, State.DONE if succeeded else State.FAILED)


def _exchange_text(
    operation: str, group: str, number: int, ranks: Sequence[int], types: Sequence[object], site: str
) -> str:
    members = ",".join(map(str, ranks[:32])) + (",…" if len(ranks) > 32 else "")
    described = ", ".join([str(each) for each in types[:4]]) + (f" and {len(types) - 4} more" if len(types) > 4 else "")
    return _BETWEEN.join((operation, group, str(number), members, described, site[-200:]))


class Flight:
    """The recorder of this process, and the descriptor of the file for stacks of its threads, or None.

    The descriptor is never closed, since the fault handler may write to it at any time.
    """

    recorder: FlightRecorder | None = None
    stacks: int | None = None


def start_flight_recorder(folder: str | os.PathLike[str], rank: int | None = None) -> bool:
    """Record the last collectives and programs of this process from now on, in a folder of its own, which must exist.

    Signals that end the process write the stacks of its threads there, too. `rank` is by default that of the
    environment variable RANK, or 0. `weft.monitor.crash_report` reads the folders of a job. Processes that `weft run`
    starts record by themselves. Returns whether this process records: it does not where another one does already, nor
    if TORCH_FR_BUFFER_SIZE, the number of collectives that are kept (by default 256), is 0.
    """
    slots = int(os.environ.get("TORCH_FR_BUFFER_SIZE") or os.environ.get("TORCH_NCCL_TRACE_BUFFER_SIZE") or 256)
    if Flight.recorder is not None or slots <= 0:
        return Flight.recorder is not None
    try:
        Flight.recorder = FlightRecorder(
            followed(Path(folder)), int(os.environ.get("RANK") or 0) if rank is None else rank, slots
        )
    except BlockingIOError:
        return False
    Flight.stacks = open_own(Path(folder, STACKS), os.O_WRONLY)
    os.ftruncate(Flight.stacks, 0)
    faulthandler.register(signal.SIGTERM, Flight.stacks, all_threads=True, chain=True)
    os.register_at_fork(after_in_child=stop_flight_recorder)
    atexit.register(Flight.recorder.end)
    return True


def start_from_environment() -> None:
    """Record beside the error file of a process that the launcher has started; nothing if that cannot be written."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        try:
            start_flight_recorder(os.path.dirname(path))
        except OSError as error:
            _log.warning("there will be no crash report of this process: %s", error)


def fatal_signal_file() -> TextIO | int:
    """Where the stacks of a process go that a fatal signal ends."""
    return sys.stderr if Flight.stacks is None else Flight.stacks


def stop_flight_recorder() -> None:
    """Record nothing more. A forked process does so at once, and leaves the recording to the one that has forked it."""
    if Flight.recorder is not None:
        atexit.unregister(Flight.recorder.end)
        Flight.recorder = Flight.stacks = None
        faulthandler.unregister(signal.SIGTERM)


def remove_recording(folder: str) -> None:
    """Remove the files of a process that has ended well."""
    for name in (RECORDING, STACKS):
        Path(folder, name).unlink(missing_ok=True)


def has_recorded_end(folder: str) -> bool:
    """Whether the program of the process that records there has ended, so that the process is about to end."""
    try:
        with Path(folder, RECORDING).open("rb") as file:
            header = file.read(_HEADER.size)
    except OSError:
        return False
    return len(header) == _HEADER.size and header.startswith(_MAGIC) and _HEADER.unpack(header)[-1] > 0


def read_recording(path: Path) -> Recording:
    """What a file holds, also while its process runs; `ValueError` if it is no recording."""
    data = path.read_bytes()
    if len(data) < _HEADER.size or not data.startswith(_MAGIC):
        raise ValueRangeError(f"{path} is not a recording of weft's flight recorder")
    _, process, rank, collectives, programs, started, ended = _HEADER.unpack_from(data)
    between = _HEADER.size + collectives * _SLOT_BYTES
    return Recording(
        process,
        rank,
        started,
        ended,
        _entries(data, _HEADER.size, collectives),
        _entries(data, between, programs),
    )


def _entries(data: bytes, at: int, slots: int) -> list[Entry]:
    entries: list[Entry] = []
    for place in range(at, at + slots * _SLOT_BYTES, _SLOT_BYTES):
        number, called, started, ended, state, length = _SLOT.unpack_from(data, place)
        if number:
            text = data[place + _SLOT.size : place + _SLOT.size + length].decode("utf-8", "replace")
            note = data[place + _SLOT_BYTES - _NOTE_BYTES : place + _SLOT_BYTES].split(b"\0")[0].decode()
            missing = tuple([int(rank) for rank in note.split(",") if rank.isdecimal()])
            entries.append(Entry(number, called, started, ended, State(state), tuple(text.split(_BETWEEN)), missing))
    return sorted(entries)
