"""Arrays from bytes in the host's memory, and the bytes of arrays, without a copy where possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import numpy as np

from weft._base.device import CPU, META, device
from weft._base.dtype import DType, bool_
from weft._base.state import ambient
from weft._base.types import Arg
from weft._lazy.aval import aval_of
from weft._lazy.checks import report
from weft._lazy.external import ExternalMemory, external_value
from weft._lazy.flushing import flush
from weft._lazy.reading import array_of
from weft._lazy.runtime import jax_device
from weft._lazy.sites import noted
from weft._lazy.value import NO_DATA, Value
from weft._tensor.alias import owner_of, path_of
from weft._tensor.copying import require_whole
from weft._tensor.tensor import Tensor, wrap
from weft.ops._jax import device_put

if TYPE_CHECKING:
    from weft._lazy.value import Absent

Bytes = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]


def computed() -> None:
    """Compute all recorded values, and raise the errors of their index checks."""
    pending = ambient().pending
    flush(pending)
    report(pending)


def elements_of(tensor: Tensor) -> jax.Array:
    """The array of a tensor. A tensor and its `detach()`, as in state dicts, share one, which is then stored once."""
    value = (tensor if path_of(tensor) else owner_of(tensor))._read()
    require_whole(value)
    return array_of(value)


def bytes_of(array: jax.Array | np.ndarray) -> memoryview:
    """The elements of an array, little-endian in row-major order; without a copy where they are in the host's memory.

    Elements on another device are fetched anew each time: the array does not keep them.
    """
    host = np.ascontiguousarray(np.asarray(device_put(array, jax.local_devices(backend="cpu")[0])))
    return host.astype(host.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8).data


def array_on(
    target: device, dtype: DType, shape: tuple[int, ...], content: Bytes, *, big: bool = False
) -> jax.Array | np.ndarray | Absent:
    """An array of the elements in `content`, which are little-endian, or big-endian if `big`.

    On the CPU it is a NumPy array that uses `content` itself, so nobody else may write to that: a program that needs it
    takes it in. Nothing is needed of `content` for the meta device.
    """
    if target is META:
        return NO_DATA
    host: np.ndarray = content.view(dtype.numpy.newbyteorder(">" if big else "<"))
    if dtype is bool_:
        host = content != 0  # bytes other than 0 and 1 would not be valid booleans
    host = host.astype(dtype.numpy, copy=False).reshape(shape)
    return np.asarray(host) if target is CPU else device_put(host, jax_device(target))


def tensor_of(array: jax.Array | np.ndarray | Absent, shape: tuple[int, ...], dtype: DType, target: device) -> Tensor:
    """A new leaf that holds an array of this shape. In a file that is mapped as shared, it is the leaf's memory."""
    if isinstance(array, np.ndarray) and _is_shared(array):
        memory = ExternalMemory(array)
        return wrap(external_value(memory, memory.whole, aval_of(shape, dtype)))
    return wrap(noted(Value(aval_of(shape, dtype, device=target), array)))


def _is_shared(array: np.ndarray) -> bool:
    """Whether the array has the memory of a file which is written by writing to that."""
    owner: Arg = array
    while type(owner) is np.ndarray:
        owner = owner.base
    return isinstance(owner, np.memmap) and owner.mode == "r+"


def without_data(shape: tuple[int, ...], dtype: DType) -> Tensor:
    """A new leaf on the meta device."""
    return tensor_of(NO_DATA, shape, dtype, META)
