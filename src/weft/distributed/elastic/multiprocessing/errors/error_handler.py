"""Writing the error file of a process."""

from __future__ import annotations

import faulthandler
import io
import json
import logging
import os
import traceback
from pathlib import Path

from weft._base.failing import failed_at, follows_another
from weft._base.files import atomic_write
from weft._base.flight import Flight, fatal_signal_file
from weft._base.pending import last_recorded
from weft._base.types import Json

_log = logging.getLogger(__name__)


class ErrorHandler:
    """Writes exceptions as JSON to the file that `TORCHELASTIC_ERROR_FILE` names; without it, to the log.

    Subclasses may override `initialize` and `record_exception`. If the file cannot be written, this is only logged, so
    that the user sees the exception itself.
    """

    _reported = False  # whether the file has an error that may not end the process after all

    def initialize(self) -> None:
        """Called before the recorded function: lets fatal signals print the tracebacks of all threads.

        In a process that the launcher has started, they are kept for its crash report instead.
        """
        try:
            faulthandler.enable(file=fatal_signal_file(), all_threads=True)
        except (OSError, RuntimeError, io.UnsupportedOperation) as error:  # stderr is closed, or is not a file
            _log.warning("fatal signals will show no traceback: %s", error)

    def record_exception(self, e: BaseException) -> None:
        """Write the exception with its traceback and the time in seconds.

        `failed_at` is that time in fractions, and `follows_another` is there if the exception tells of a missing rank.
        """
        failed = failed_at(e)
        extra = {
            "py_callstack": "".join(traceback.format_exception(e)),
            "timestamp": str(int(failed)),
            "failed_at": repr(failed),
        }
        # A rank that misses another one often ends first. The mark lets the launcher show the other's error as the
        # cause.
        if follows_another(e):
            extra["follows_another"] = "True"
        # The stacks are those of the moment of the error; when the launcher looks, the process has ended.
        if Flight.stacks is not None:
            faulthandler.dump_traceback(Flight.stacks, all_threads=True)
            extra["last_operators"] = "\n".join(last_recorded())
        self._write({"message": {"message": f"{type(e).__name__}: {e}", "extraInfo": extra}})

    def report(self, error: BaseException | None) -> None:
        """Write an exception that seems to end the process; None if it goes on, and the file is to be removed."""
        path = self._get_error_file_path()
        if error is None:
            if self._reported and path:
                Path(path).unlink(missing_ok=True)
            self._reported = False
        elif isinstance(error, Exception) or (isinstance(error, SystemExit) and error.code not in (None, 0)):
            self._reported = True
            self.record_exception(error)

    def dump_error_file(self, rootcause_error_file: str, error_code: int = 0) -> None:
        """Copy a child's error file to that of this process, with the exit code, which the child could not know."""
        data = json.loads(Path(rootcause_error_file).read_text(encoding="utf-8"))
        if error_code:
            self.override_error_code_in_rootcause_data(rootcause_error_file, data, error_code)
        self._write(data)

    def override_error_code_in_rootcause_data(
        self, rootcause_error_file: str, rootcause_error: dict[str, Json], error_code: int = 0
    ) -> None:
        """Add the exit code to the message of an error file's contents, if the message has fields."""
        message = rootcause_error.get("message")
        if isinstance(message, dict):
            message["errorCode"] = error_code
        else:
            _log.warning("%s has no message with fields; exit code %s is not noted", rootcause_error_file, error_code)

    def _get_error_file_path(self) -> str | None:
        return os.environ.get("TORCHELASTIC_ERROR_FILE")

    def _write(self, data: dict[str, Json]) -> None:
        """Write the file in one step, so that a reader never sees half of it."""
        path = self._get_error_file_path()
        text = json.dumps(data)
        if not path:
            _log.info("no error file is named by TORCHELASTIC_ERROR_FILE; it would hold: %s", text)
            return
        try:
            with atomic_write(Path(path), private=True) as file:
                file.write(text.encode())
        except OSError as error:
            _log.warning("the error file cannot be written: %s", error)
