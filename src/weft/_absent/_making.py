"""How the modules of this package make what a name stands for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def kept(module: str, name: str, make: Callable[[], Any]) -> Any:
    """What `make` gives, under this name in the module from now on; `AttributeError` for names of Python's own."""
    if name.startswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    made = make()
    made.__module__, made.__name__, made.__qualname__ = module, name, name
    setattr(sys.modules[module], name, made)
    return made
