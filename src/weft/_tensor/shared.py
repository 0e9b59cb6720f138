"""Tensors in memory that processes share, and their way through `multiprocessing`.

A forked process has the shared memory of its parent. To others tensors go by the pickles of `multiprocessing` (its
queues, pipes, and arguments of processes): they carry a handle of the segment, not the elements.
"""

from __future__ import annotations

import mmap
import os
import weakref
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import numpy as np

from weft._base.device import CPU
from weft._base.dtype import DType
from weft._base.state import using
from weft._lazy.aligned import Array
from weft._lazy.aval import aval_of
from weft._lazy.external import ExternalMemory, external_value
from weft._tensor.alias import layout_of, owner_of
from weft._tensor.base import new_handle
from weft._tensor.convert import from_numpy_array
from weft._tensor.copying import extras_of, owner_that_saves, set_extras
from weft._tensor.external import move_outside
from weft._tensor.sharing import share
from weft._tensor.strided import strided_view
from weft._tensor.tensor import Tensor, wrap
from weft._tensor.view import external_memory_of
from weft.errors import GradientError, ShapeError
from weft.multiprocessing._segments import Handle, Segment, new_segment

# no cell: the storages that this process has on segments, whatever a function does
_owners: weakref.WeakKeyDictionary[Segment, weakref.ref[Tensor]] = weakref.WeakKeyDictionary()


class MappedFile(NamedTuple):
    """A file whose bytes are the elements of a tensor."""

    filename: str


def shared_by(tensor: Tensor) -> Segment | MappedFile | None:
    """By what processes share the elements of a tensor; None if they do not."""
    memory = external_memory_of(owner_of(tensor))
    by = None if memory is None else memory.shared
    return by if isinstance(by, (Segment, MappedFile)) else None


def file_tensor(filename: str, count: int, dtype: DType, *, shared: bool) -> Tensor:
    """A vector of the first elements in a file, which is made or extended if it is `shared`.

    Then writes to the tensor are writes to the file; else the file stays as it is, and must. `RuntimeError` for a file
    that is not there or too short.
    """
    size = count * dtype.itemsize
    try:
        file = os.open(filename, os.O_RDWR | os.O_CREAT if shared else os.O_RDONLY, 0o666)
    except OSError as error:
        way = "read-write" if shared else "read-only"
        raise ShapeError(f"unable to open file <{filename}> in {way} mode: {error.strerror} ({error.errno})") from None
    try:
        length = os.fstat(file).st_size
        if length < size and not shared:
            raise ShapeError(f"file <{filename}> size <{length}> is smaller than the required mapping size <{size}>")
        if length < size:
            os.ftruncate(file, size)
        # A copy-on-write mapping may be written to, as XLA's arrays over it need, and leaves the file as it is.
        access = mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY
        content: Any = mmap.mmap(file, size, access=access) if size else b""
    finally:
        os.close(file)
    array = np.ndarray((count,), dtype.numpy, content)
    if not shared:
        return from_numpy_array(array)
    memory = ExternalMemory(array, shared=MappedFile(filename))
    return wrap(external_value(memory, memory.whole, aval_of((count,), dtype)))


def segment_of(tensor: Tensor) -> Segment | None:
    """The segment in which the elements of a tensor are, if they are in one."""
    by = shared_by(tensor)
    return by if isinstance(by, Segment) else None


def move_to_segment(tensor: Tensor) -> Segment:
    """Move the storage of a tensor on the CPU to shared memory, unless it is there; returns the segment."""
    while True:
        segment = segment_of(tensor)
        if segment is not None:
            return segment
        owner = owner_of(tensor)
        move_outside(owner, _in_segment)
        _owners[move_to_segment(owner)] = weakref.ref(owner)


def _in_segment(elements: Array) -> ExternalMemory:
    segment = new_segment(elements.nbytes)
    array = np.ndarray(elements.shape, elements.dtype, segment.bytes)
    array[...] = elements
    return ExternalMemory(array, shared=segment)


# --- pickles of `multiprocessing` ---------------------------------------------------------------------------------


def _reduced(tensor: Tensor) -> tuple[Any, ...]:
    """What another process makes the tensor of: a handle of its storage, and its place there."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise GradientError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support "
            "crossing process boundaries.  If you just want to transfer the data, call detach() on the tensor before "
            "serializing (e.g., putting it on the queue)."
        )
    if tensor.device is not CPU or owner_that_saves(tensor) is not None or tensor._read().aval.owner is not None:
        reduced: Any = tensor.__reduce_ex__(5)
        return reduced
    if layout_of(tensor, exact=True).changed:
        tensor = tensor.resolve_conj().resolve_neg()
    layout = layout_of(tensor, exact=True)
    place = layout.dtype, layout.sizes, layout.strides, int(layout.offset)
    sent = move_to_segment(tensor).sent()
    return _rebuilt, (type(tensor), sent, owner_of(tensor).dtype, place, tensor.requires_grad, extras_of(tensor))


def _rebuilt(
    kind: type[Tensor],
    sent: Handle,
    dtype: DType,
    place: tuple[DType, tuple[int, ...], tuple[int, ...], int],
    requires_grad: bool,
    extras: dict[str, Any],
) -> Tensor:
    own_dtype, sizes, strides, offset = place
    handle: Tensor = new_handle(kind)
    with using(grad=False):
        owner = _owner_on(sent.opened(), dtype)
        share(handle, strided_view(owner, sizes, strides, offset, dtype=own_dtype))
    handle.requires_grad_(requires_grad)
    set_extras(handle, extras)
    return handle


def _owner_on(segment: Segment, dtype: DType) -> Tensor:
    """The tensor that owns the storage on a segment in this process."""
    reference = _owners.get(segment)
    owner = None if reference is None else reference()
    if owner is None:
        array = np.ndarray((segment.size // dtype.itemsize,), dtype.numpy, segment.bytes)
        memory = ExternalMemory(array, shared=segment)
        owner = wrap(external_value(memory, memory.whole, aval_of(array.shape, dtype)))
        _owners[segment] = weakref.ref(owner)
    return owner_of(owner)


def share_between_processes(kind: type[Tensor]) -> None:
    """Let tensors of a class go through `multiprocessing` in shared memory."""
    ForkingPickler.register(kind, _reduced)


share_between_processes(Tensor)
