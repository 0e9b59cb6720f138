"""NumPy's classes for `isinstance` of an `Arg`: apart from `guards.py`, since the launcher does not load NumPy."""

from __future__ import annotations

import numpy as np

ARRAY: type = np.ndarray
NUMPY_NUMBER: type = np.generic
INTEGERS: tuple[type, ...] = (int, np.integer)
"""For arguments that are one integer or several: Python's and NumPy's."""
