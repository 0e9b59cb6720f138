"""Writing the error file of a process."""

from __future__ import annotations

import faulthandler
import io
import json
import logging
import os
import time
import traceback
from pathlib import Path
from typing import Any

from weft._base.files import atomic_write
from weft._base.flight import Flight, fatal_signal_file
from weft._base.pending import last_recorded

_log = logging.getLogger(__name__)


class ErrorHandler:
    """Writes exceptions as JSON to the file that `TORCHELASTIC_ERROR_FILE` names; without it, to the log.

    Subclasses may override `initialize` and `record_exception`. If the file cannot be written, this is only logged, so
    that the user sees the exception itself.
    """

    def initialize(self) -> None:
        """Called before the recorded function: lets fatal signals print the tracebacks of all threads.

        In a process that the launcher has started, they are kept for its crash report instead.
        """
        try:
            faulthandler.enable(file=fatal_signal_file(), all_threads=True)
        except (OSError, RuntimeError, io.UnsupportedOperation) as error:  # stderr is closed, or is not a file
            _log.warning("fatal signals will show no traceback: %s", error)

    def record_exception(self, e: BaseException) -> None:
        """Write the exception with its traceback and the time in seconds."""
        extra = {"py_callstack": "".join(traceback.format_exception(e)), "timestamp": str(int(time.time()))}
        if Flight.stacks is not None:
            faulthandler.dump_traceback(Flight.stacks, all_threads=True)
            extra["last_operators"] = "\n".join(last_recorded())
        self._write({"message": {"message": f"{type(e).__name__}: {e}", "extraInfo": extra}})

    def dump_error_file(self, rootcause_error_file: str, error_code: int = 0) -> None:
        """Copy a child's error file to that of this process, with the exit code, which the child could not know."""
        data = json.loads(Path(rootcause_error_file).read_text(encoding="utf-8"))
        if error_code:
            self.override_error_code_in_rootcause_data(rootcause_error_file, data, error_code)
        self._write(data)

    def override_error_code_in_rootcause_data(
        self, rootcause_error_file: str, rootcause_error: dict[str, Any], error_code: int = 0
    ) -> None:
        """Add the exit code to the message of an error file's contents, if the message has fields."""
        message = rootcause_error.get("message")
        if isinstance(message, dict):
            message["errorCode"] = error_code
        else:
            _log.warning("%s has no message with fields; exit code %s is not noted", rootcause_error_file, error_code)

    def _get_error_file_path(self) -> str | None:
        return os.environ.get("TORCHELASTIC_ERROR_FILE")

    def _write(self, data: dict[str, Any]) -> None:
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
