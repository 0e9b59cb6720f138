"""Weft: PyTorch's programming model and distributed stack, in Python, on XLA.

Everything is imported on first use, so that programs which only launch others start quickly.
"""

from __future__ import annotations

import os as _os
import sys as _sys

from weft._api import load as _load
from weft._base.interrupts import uninterrupted as _uninterrupted
from weft._import_paths.finder import serve_below as _serve_below
from weft.torch_version import TorchVersion as _TorchVersion

if _os.environ.get("WEFT_LOGS") or _os.environ.get("TORCH_LOGS"):
    from weft._base.logs import set_from_environment as _set_from_environment

    _set_from_environment()

if _os.environ.get("PYTORCH_API_USAGE_STDERR"):
    from weft._base import usage as _usage  # prints that the package is imported

    del _usage

__version__ = _TorchVersion("2.13.0+weft.0.1.0")  # of the release of PyTorch that this one follows, and its own
torch = _sys.modules[__name__]  # as PyTorch has itself, which its programs reach through modules that import it


def __getattr__(name: str) -> object:
    with _uninterrupted:  # jax, once interrupted while it is imported, cannot be imported any more
        value = _load(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from weft._api import names

    return sorted({*globals(), *names()})


_serve_below(__name__)
