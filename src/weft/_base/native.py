"""The extension `weft._native`: None where no compiler has built it, and where `WEFT_NATIVE` turns it off."""

from __future__ import annotations

from functools import partial

import numpy as np

from weft._base import config
from weft._base.interrupts import received, uninterrupted

if config.NATIVE:
    try:
        import weft._native as native  # `from weft` would load the whole package first
    except ImportError:
        native = None
    else:
        native.watch(received, uninterrupted.poll, partial(np.errstate, all="ignore"))
else:
    native = None
