"""What XLA does during a profile, by jax's profiler."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from weft._base.types import Json
from weft.errors import OptionError

_BEGIN = "weft profile begins"


class XlaTrace:
    """A trace of jax's profiler, in a folder that is removed with it."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._remove: Callable[[], object] = lambda: None

    def start(self) -> None:
        """Begin; `RuntimeError` if another trace is running."""
        self._remove()
        self._folder = Path(tempfile.mkdtemp(prefix="weft_profile"))
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # the lines of operators are noted by the profile
        try:
            jax.profiler.start_trace(str(self._folder), profiler_options=options)
        except RuntimeError as error:
            raise OptionError(f"profiler.profile: a trace cannot be started: {error}") from error
        with jax.profiler.TraceAnnotation(_BEGIN):
            pass

    def stop(self) -> None:
        """End."""
        jax.profiler.stop_trace()

    def _files(self) -> list[Path]:
        return [] if self._folder is None else sorted(path for path in self._folder.rglob("*") if path.is_file())

    def events(self) -> list[dict[str, Json]]:
        """The entries of the trace in Chrome's format; times in microseconds since it began."""
        for path in self._files():
            if path.name.endswith(".trace.json.gz"):
                with gzip.open(path, "rt") as file:
                    entries: list[dict[str, Any]] = json.load(file)["traceEvents"]
                begin = next((entry["ts"] for entry in entries if entry.get("name") == _BEGIN), 0.0)
                return [entry | {"ts": entry["ts"] - begin} if "ts" in entry else entry for entry in entries if entry]
        return []

    def copy_to(self, folder: Path, worker: str, step: int) -> None:
        """Copy the files to where TensorBoard's plugin `profile` looks for them."""
        for file in self._files():
            there = folder / "plugins" / "profile" / f"{file.parent.name}_step{step}"
            there.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, there / (worker + file.name[file.name.index(".") :]))
