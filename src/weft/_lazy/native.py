"""The extension `weft._native`, or None where it is not built, and where `WEFT_NATIVE` turns it off.

It has twins of functions of this package, which take the common calls. The functions in Python are the reference: they
take every call, are what a twin hands all other calls to, and run where there is no extension.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from weft._base import config
from weft._base.interrupts import received, uninterrupted
from weft._base.threads import INITIAL_THREADS

__all__ = ["native"]

_VERSION = 4  # of the extension, as `native/src/module.cc` has it

if TYPE_CHECKING:
    from weft import _native as native
else:
    native = None
    if config.NATIVE:
        with suppress(ImportError):
            native = import_module("weft._native")
    if native is not None and getattr(native, "version", 0) != _VERSION:
        warnings.warn(
            f"the extension {native.__file__} was built for another version of Weft, and is not used: build it again, "
            "by installing Weft, or in a checkout by `make native`",
            RuntimeWarning,
            stacklevel=2,
        )
        native = None

if native is not None:
    native.set_threads(INITIAL_THREADS)
    native.watch(received, uninterrupted.poll, partial(np.errstate, all="ignore"))
