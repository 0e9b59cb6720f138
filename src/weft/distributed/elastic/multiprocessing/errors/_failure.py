"""The failure of a worker, and the summary of the failures of a group."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import time
from dataclasses import InitVar, dataclass, field
from datetime import datetime
from pathlib import Path

from weft._base.guards import is_dict
from weft._base.types import Json
from weft.errors import PreconditionError, WeftError

NOT_AVAILABLE = "<N/A>"
_NOT_USERS = ("<", str(Path(__file__).resolve().parents[4]) + os.sep, os.path.dirname(os.__file__) + os.sep)
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")
_FRAME = re.compile(r'^ *File "(?P<file>.+)", line (?P<line>\d+)', re.MULTILINE)
_WIDEST = 60
_TRACEBACK = "Traceback (most recent call last):"
_TAIL = 1 << 16  # bytes at the end of a log in which a traceback is searched
_CAUSES = frozenset({signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})
"""Signals that are not a result of another worker's failure. SIGABRT may be: libraries abort if they miss a peer."""
_NOTICED_WITHIN = 2.0  # seconds in which the end of a process is noticed, even on a busy machine
_log = logging.getLogger(__name__)


@dataclass
class ProcessFailure:
    """The failure of a worker.

    `exitcode` is negative for a signal. `error_file` is the path of the error file; without a file it is `<N/A>`, and
    the message is made from the exit code. `message` is text, or the fields of the error file's message. `timestamp` is
    in seconds: that in the file, or the time of the end (`ended`, by default now). A `temporary` error file is removed
    with this process, and is not named in summaries.
    """

    local_rank: int
    pid: int
    exitcode: int
    error_file: str
    temporary: bool = field(default=False, kw_only=True)
    ended: InitVar[float | None] = field(default=None, kw_only=True)
    error_file_data: dict[str, Json] = field(init=False)
    message: str | dict[str, Json] = field(init=False)
    timestamp: int = field(init=False)
    _seen: float = field(init=False, repr=False, compare=False)  # orders failures in the same second
    _follows: bool = field(init=False, repr=False, compare=False)  # whether it is known to follow another's

    def __post_init__(self, ended: float | None) -> None:
        self._seen = time.time() if ended is None else ended
        self.error_file_data = {"message": "<NONE>"}
        self.message, self.timestamp = "", int(self._seen)
        self._follows = False
        path = Path(self.error_file)
        if path.is_file():
            self._read(path)
        else:
            self.error_file = NOT_AVAILABLE
        if not self.message:
            self.message = self._from_exit_code()

    def _read(self, path: Path) -> None:
        try:
            data: dict[str, Json] = json.loads(path.read_text(encoding="utf-8"))
            message = data["message"]
            stamp = data.get("timestamp", 0) if isinstance(message, str) else message["extraInfo"]["timestamp"]
            self.message, self.timestamp = message, int(stamp)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            _log.warning("%s is not an error file: %r", path, error)
            self.message = f"{self._from_exit_code()}; its error file {path} cannot be read: {error!r}"
        else:
            self.error_file_data = data
            extra: dict[str, Json] = message.get("extraInfo", {}) if is_dict(message) else {}
            self._seen = float(extra.get("failed_at") or path.stat().st_mtime)
            self._follows = "follows_another" in extra

    def _from_exit_code(self) -> str:
        if self.exitcode < 0:
            return f"Signal {-self.exitcode} ({self.signal_name()}) received by PID {self.pid}"
        return (
            f"exit code {self.exitcode} without an error file; decorate the main function with "
            "weft.distributed.elastic.multiprocessing.errors.record to see the exception here"
        )

    def signal_name(self) -> str:
        """Name of the signal that ended the process; `<N/A>` if none did."""
        try:
            return signal.Signals(-self.exitcode).name
        except ValueError:
            return NOT_AVAILABLE

    def order(self) -> tuple[bool, float, float]:
        """The sort key that puts the failure which caused the others first.

        A worker that is killed writes nothing, and others may write that they miss it before its end is noticed.
        """
        before = _NOTICED_WITHIN if -self.exitcode in _CAUSES else 0.0
        return self._follows, self.timestamp - before, self._seen - before

    def timestamp_isoformat(self) -> str:
        """The time of the failure as YYYY-MM-DD_HH:MM:SS, in local time."""
        return datetime.fromtimestamp(self.timestamp).isoformat(sep="_")

    def traceback(self) -> str:
        """The worker's traceback if there is one, otherwise its message."""
        if isinstance(self.message, str):
            return self.message
        return self.message.get("extraInfo", {}).get("py_callstack") or self.message.get("message", NOT_AVAILABLE)

    def headline(self) -> str:
        """The exception in one line, with the innermost line of the user's code, or else the innermost of all."""
        text = self.message if isinstance(self.message, str) else str(self.message.get("message", NOT_AVAILABLE))
        first = text.strip().partition("\n")[0] or NOT_AVAILABLE
        frames = list(_FRAME.finditer(self.traceback()))
        frames = [frame for frame in frames if _is_users(frame["file"])] or frames
        return f"{first} ({frames[-1]['file']}:{frames[-1]['line']})" if frames else first


def _is_users(file: str) -> bool:
    """Whether a file belongs neither to this package, nor to Python's library, nor to an installed package."""
    return not file.startswith(_NOT_USERS) and _INSTALLED.search(file) is None


class ChildFailedError(WeftError):
    """Workers of a group have failed; the text begins with the first failure's rank, host, exception and line.

    `failures` maps global ranks to `ProcessFailure`. If it is raised in a function decorated with `record`, the first
    failure's error file becomes that of the raising process.
    """

    def __init__(self, name: str, failures: dict[int, ProcessFailure]) -> None:
        if not failures:
            raise PreconditionError(f"{name}: a ChildFailedError needs at least one failure, got none")
        self.name = name
        self.failures = failures
        rank, failure = self.get_first_failure()
        super().__init__(f"rank {rank} on {socket.gethostname()}: {failure.headline()}\n{self.format_msg()}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.name, self.failures)

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """The global rank that has failed first, and its failure."""
        return min(self.failures.items(), key=lambda one: one[1].order())

    def format_msg(self, boarder_delim: str = "=", section_delim: str = "-") -> str:
        """All failures, the first one last."""
        first, _ = self.get_first_failure()
        descriptions = {rank: _described(at, rank, self.failures[rank]) for at, rank in enumerate(self.failures)}
        title = f"{self.name} FAILED"
        width = min(_WIDEST, max(len(line) for text in (title, *descriptions.values()) for line in text.split("\n")))
        others = [text for rank, text in descriptions.items() if rank != first] or ["  <NO_OTHER_FAILURES>"]
        border, section = boarder_delim * width, section_delim * width
        parts = (border, title, section, "Failures:", *others, section, "Root Cause (first observed failure):")
        return "\n".join(("", *parts, descriptions[first], border))


def _described(at: int, rank: int, failure: ProcessFailure) -> str:
    named = failure.signal_name()
    ended_by = "" if named == NOT_AVAILABLE else f" ({named})"
    error_file_lines = () if failure.temporary else (f"  error_file: {failure.error_file}",)
    return "\n".join(
        (
            f"[{at}]:",
            f"  time      : {failure.timestamp_isoformat()}",
            f"  host      : {socket.gethostname()}",
            f"  rank      : {rank} (local_rank: {failure.local_rank})",
            f"  exitcode  : {failure.exitcode} (pid: {failure.pid}){ended_by}",
            *error_file_lines,
            "  traceback : " + failure.traceback().rstrip("\n").replace("\n", "\n  "),
        )
    )


def last_traceback(log: str) -> dict[str, Json] | None:
    """The message of the uncaught exception at the end of a Python program's stderr; None if there is none."""
    if not Path(log).is_file():
        return None
    with open(log, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        text = file.read().decode("utf-8", "replace").rstrip()
    at = text.rfind(_TRACEBACK)
    lines = text[at:].split("\n") if at >= 0 else []
    ends = [number for number, line in enumerate(lines) if number and not line.startswith(" ")]
    if not ends:
        return None
    return {"message": "\n".join(lines[ends[0] :]), "extraInfo": {"py_callstack": text[at:]}}
