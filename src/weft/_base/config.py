"""Environment variables, each read once, when the package is imported."""

from __future__ import annotations

import os
from pathlib import Path


def _flag(name: str, default: bool) -> bool:
    text = os.environ.get(name, "")
    return default if not text else text.lower() not in {"0", "false", "off", "no"}


EAGER = _flag("WEFT_EAGER", default=False)
"""Compute every operator at once, for debugging."""

TUNE_ALLOCATOR = _flag("WEFT_TUNE_ALLOCATOR", default=True)
"""Make glibc keep freed pages: XLA:CPU asks for its temporaries anew in every run."""

COMPILE_CACHE = os.environ.get(
    "WEFT_COMPILE_CACHE", str(Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "weft" / "xla")
)
"""Folder of compiled programs; empty turns the cache off."""

TIER = os.environ.get("WEFT_TIER", "compiled")
"""How values are computed on CPUs: "compiled", or "interpreted", application by application with NumPy."""

NODE_CAP = int(os.environ.get("WEFT_NODE_CAP", "16384"))
"""Recorded operators that may wait before they are computed without being asked for."""

SLOW_COMPILE_SECONDS = float(os.environ.get("WEFT_SLOW_COMPILE_SECONDS", "2"))
"""A compilation that takes longer says so on stderr while it runs."""
