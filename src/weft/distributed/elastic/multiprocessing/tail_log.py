"""Log files shown on the console while they are written."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO

_CHUNK = 1 << 16
_log = logging.getLogger(__name__)


class TailLog:
    """Copies the lines of log files to a stream, each with the prefix `[{name}{rank}]:` or the rank's own prefix.

    A file may appear after `start()`. `stop()` returns when everything in the files has been copied. If the stream
    cannot be written any more, copying ends, but not the program.
    """

    def __init__(
        self,
        name: str,
        log_files: Mapping[int, str],
        dst: TextIO,
        log_line_prefixes: Mapping[int, str] | None = None,
        interval_sec: float = 0.1,
        log_line_filter: Callable[[str], bool] = lambda line: True,
    ) -> None:
        prefixes = log_line_prefixes or {}
        self._files = [
            _Follower(path, prefixes.get(rank, f"[{name}{rank}]:"), log_line_filter) for rank, path in log_files.items()
        ]
        self._name = name
        self._dst = dst
        self._interval = interval_sec
        self._finished = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> TailLog:
        """Start to copy, in a thread."""
        if self._files:
            self._thread = threading.Thread(target=self._run, name=f"TailLog_{self._name}", daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """Copy the rest and end the thread."""
        self._finished.set()
        if self._thread:
            self._thread.join()

    def stopped(self) -> bool:
        """Whether `stop` has been called."""
        return self._finished.is_set()

    def _run(self) -> None:
        try:
            while True:
                last = self._finished.wait(self._interval)
                for file in self._files:
                    file.copy(self._dst, last)
                if last:
                    return
        except (OSError, ValueError) as error:  # ValueError: the stream is closed
            _log.warning("the output of %s is not shown any more: %s", self._name, error)
        finally:
            for file in self._files:
                file.close()


class _Follower:
    """One file, and how far it has been copied."""

    def __init__(self, path: str, prefix: str, wanted: Callable[[str], bool]) -> None:
        self._path = Path(path)
        self._prefix = prefix
        self._wanted = wanted
        self._source: TextIO | None = None
        self._partial = ""

    def copy(self, dst: TextIO, last: bool) -> None:
        """Write the complete lines; at the end (`last`) also an incomplete one."""
        if self._source is None:
            if not self._path.exists():
                return
            self._source = self._path.open(encoding="utf-8", errors="replace")
        while chunk := self._source.read(_CHUNK):
            *lines, self._partial = (self._partial + chunk).split("\n")
            self._write(dst, lines)
        if last and self._partial:
            self._write(dst, [self._partial])
            self._partial = ""

    def _write(self, dst: TextIO, lines: list[str]) -> None:
        output = [f"{self._prefix}{line}\n" for line in lines if self._wanted(line)]
        if output:
            dst.write("".join(output))
            dst.flush()

    def close(self) -> None:
        if self._source is not None:
            self._source.close()
