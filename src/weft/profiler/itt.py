"""Ranges under the names for Intel's tracing: those of `weft.cuda.nvtx`, in the traces of `jax.profiler`."""

from __future__ import annotations

from weft.cuda.nvtx import mark as mark
from weft.cuda.nvtx import range as range
from weft.cuda.nvtx import range_pop as range_pop
from weft.cuda.nvtx import range_push as range_push


def is_available() -> bool:
    """False: Intel's VTune does not show the ranges."""
    return False
