"""Values moved between devices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax

from weft._base.capture import active_capture
from weft._base.device import CPU, META, device
from weft._base.state import ambient
from weft._base.types import AnyArray
from weft._lazy import metrics
from weft._lazy.aval import aval_of, named, owned
from weft._lazy.reading import array_of
from weft._lazy.role import Interior
from weft._lazy.runtime import jax_device
from weft._lazy.signature import Signature
from weft._lazy.sites import noted
from weft._lazy.value import NO_DATA, Value, tick
from weft.ops._jax import device_put


def put(source: AnyArray, target: device) -> AnyArray:
    """An array that has been on the host or on another device, on a device."""
    if target is META:
        return NO_DATA
    if target is CPU:
        with metrics.from_device(source):
            return device_put(source, jax_device(target))
    with metrics.to_device(source.nbytes):
        return device_put(source, jax_device(target))


def moved_value(value: Value, target: device) -> Value:
    """A copy of a value on another device, as its owner makes it. Its gradient is copied back."""
    owner = value.aval.owner
    return moved_array(value, target) if owner is None else owner.move(value, target)


def moved_array(value: Value, target: device) -> Value:
    """A value of the same names and owner whose array is a copy on another device. Its gradient is copied back."""
    active_capture().needs_value("to move a tensor to another device")
    aval = aval_of(value.aval.shape, value.aval.dtype, device=target)
    aval = owned(named(aval, value.aval.names), value.aval.owner)
    result = noted(Value(aval, NO_DATA if target is META else put(array_of(value), target)))
    if value.role is not None and ambient().grad:  # record an application that has already been computed
        signature = Signature("to_device", _itself, (value.aval,), device=target)
        result.origin, result.inputs, result.time = signature.outputs[0], (value,), tick()
        result.role = Interior(custom=partial(_moved_back, value.aval.device))
    return result


def _itself(array: jax.Array) -> tuple[jax.Array]:
    return (array,)


def _moved_back(source: device, cotangents: Sequence[Value], outputs: object) -> list[Value]:
    del outputs
    return [moved_value(cotangents[0], source)]
