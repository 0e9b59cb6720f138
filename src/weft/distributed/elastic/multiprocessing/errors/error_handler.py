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

_log = logging.getLogger(__name__)


class ErrorHandler:
    """Writes exceptions as JSON to the file that `TORCHELASTIC_ERROR_FILE` names; without it, to the log.

    Subclasses may override `initialize` and `record_exception`. A file that cannot be written is logged and otherwise
    ignored, so that the exception itself is what the user sees.
    """

    def initialize(self) -> None:
        """Called before the recorded function: tracebacks of all threads are printed on fatal signals."""
        try:
            faulthandler.enable(all_threads=True)
        except (OSError, RuntimeError, io.UnsupportedOperation) as error:  # stderr is closed, or is no file
            _log.warning("fatal signals will show no traceback: %s", error)

    def record_exception(self, e: BaseException) -> None:
        """Write the exception with its traceback and the time in seconds."""
        extra = {"py_callstack": "".join(traceback.format_exception(e)), "timestamp": str(int(time.time()))}
        self._write({"message": {"message": f"{type(e).__name__}: {e}", "extraInfo": extra}})

    def dump_error_file(self, rootcause_error_file: str, error_code: int = 0) -> None:
        """Hand a child's error file on as this process's, with the exit code that the child could not know."""
        data = json.loads(Path(rootcause_error_file).read_text(encoding="utf-8"))
        if error_code:
            self.override_error_code_in_rootcause_data(rootcause_error_file, data, error_code)
        self._write(data)

    def override_error_code_in_rootcause_data(
        self, rootcause_error_file: str, rootcause_error: dict[str, Any], error_code: int = 0
    ) -> None:
        """Note the exit code beside the message of an error file's contents, where the message has fields."""
        message = rootcause_error.get("message")
        if isinstance(message, dict):
            message["errorCode"] = error_code
        else:
            _log.warning("%s has no message with fields; exit code %s is not noted", rootcause_error_file, error_code)

    def _get_error_file_path(self) -> str | None:
        return os.environ.get("TORCHELASTIC_ERROR_FILE")

    def _write(self, data: dict[str, Any]) -> None:
        """Put the contents in place at once, so that a reader never sees half a file."""
        path = self._get_error_file_path()
        text = json.dumps(data)
        if not path:
            _log.info("no error file is named by TORCHELASTIC_ERROR_FILE; it would hold: %s", text)
            return
        part = Path(f"{path}.{os.getpid()}.part")
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(path)
        except OSError as error:
            _log.warning("the error file cannot be written: %s", error)
            part.unlink(missing_ok=True)
