"""Environment variables, each read once, when the package is imported."""

from __future__ import annotations

import os
from pathlib import Path

from weft.errors import SettingError
from weft_as_torch import OFF, ON


def _flag(name: str, default: bool) -> bool:
    text = os.environ.get(name, "").lower()
    if text and text not in (*OFF, *ON):
        raise SettingError(f"{name}={os.environ[name]}: expected one of {', '.join((*ON, *OFF))}")
    return text in ON if text else default


def _choice(name: str, choices: tuple[str, ...]) -> str:
    text = os.environ.get(name) or choices[0]
    if text not in choices:
        raise SettingError(f"{name}={text}: expected one of {', '.join(choices)}")
    return text


def user_cache() -> Path | None:
    """The folder `weft` in `$XDG_CACHE_HOME` or `~/.cache`; None for a user without a home, as containers may have."""
    folder = os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return None if folder.startswith("~") else Path(folder) / "weft"


EAGER = _flag("WEFT_EAGER", default=False)
"""Compute every operator at once, for debugging."""

TUNE_ALLOCATOR = _flag("WEFT_TUNE_ALLOCATOR", default=True)
"""Make glibc keep freed pages: XLA:CPU asks for its temporaries anew in every run."""

COMPILE_CACHE = os.environ.get("WEFT_COMPILE_CACHE", str(cache / "xla") if (cache := user_cache()) else "")
"""Folder of compiled programs; empty turns the cache off."""

TIER = _choice("WEFT_TIER", ("auto", "compiled", "interpreted"))
"""How values are computed on CPUs. "compiled": by XLA. "interpreted": application by application with NumPy. "auto": a
program is interpreted until compiling it pays."""

NATIVE = _flag("WEFT_NATIVE", default=True)
"""Compute operators by native bodies where rows have some (`ops/_native.py`); otherwise all by XLA's own code."""

NODE_CAP = int(os.environ.get("WEFT_NODE_CAP", "16384"))
"""Recorded operators that may be pending before they are computed without being needed."""

HLO_DEBUG = _flag("XLA_HLO_DEBUG", default=False)
"""Note the line of every recorded operator, for the locations in graphs that `weft.xla` exports; slows recording."""

FULL_TRACEBACKS = _flag("WEFT_FULL_TRACEBACKS", default=False)
"""Show the frames of this package and of jax in the tracebacks of errors; otherwise these end at the user's line."""

SLOW_COMPILE_SECONDS = float(os.environ.get("WEFT_SLOW_COMPILE_SECONDS", "2"))
"""Compilations that take longer, in seconds, are reported on stderr while they run."""

LOGS = os.environ.get("WEFT_LOGS", "")
"""Levels of components' logs, such as "+dtensor,-c10d" (`_base/logs.py`)."""

TORCH_LOGS = os.environ.get("TORCH_LOGS", "")
"""The same, where WEFT_LOGS does not say otherwise."""
