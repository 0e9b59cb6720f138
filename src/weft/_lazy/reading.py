"""Reading values: their arrays, on a device or on the host."""

from __future__ import annotations

import numpy as np

from weft._base.device import CPU
from weft._base.numpy_guards import ARRAY
from weft._base.timeline import Listeners, Phase, spanned
from weft._base.types import AnyArray
from weft._lazy import metrics
from weft._lazy.lost import error_for, is_lost
from weft._lazy.program import place, placed
from weft._lazy.runtime import raise_if_exhausted, telling_of_memory
from weft._lazy.value import StandIn, Value


def array_of(value: Value) -> AnyArray:
    """The jax array of a value, computed now if necessary. Execution is asynchronous; this does not wait."""
    array: AnyArray = value.read()
    if not isinstance(array, ARRAY):
        return array
    if isinstance(value.content, StandIn):  # of external memory, which the value goes on showing
        return placed(array, value.aval.device)
    place(value)
    return value.content


def host_array(value: Value) -> np.ndarray:
    """A value's elements as a NumPy array."""
    array = value.read()
    return _waited_for(value, array) if Listeners.all else _on_host(value, array)


def _on_host(value: Value, array: object) -> np.ndarray:
    """An array on the host, once it is computed."""
    if value.aval.device is CPU:
        try:
            return np.asarray(array)
        except (RuntimeError, MemoryError) as error:
            raise_if_exhausted(error, CPU)
            if is_lost(array):
                raise error_for(value) from None
            raise
    with metrics.from_device(array), telling_of_memory(value.aval.device):
        return np.asarray(array)


_waited_for = spanned(Phase.WAITING, "for a value")(_on_host)
