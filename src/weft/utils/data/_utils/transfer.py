"""Transfer of objects between processes: pickled, with the elements of tensors and arrays in shared memory.

The memory is an anonymous file, whose descriptor is given to the worker when it starts. So the kernel frees it when the
last of the processes has ended, in whatever way.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
from collections.abc import Callable, Sequence
from itertools import accumulate
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._base.dtype import DType
from weft._base.types import PyTree, SavedState
from weft._comm.shared_memory.loans import on_loan
from weft._lazy.aligned import ALIGNMENT, room
from weft._lazy.aval import aval_of
from weft._lazy.sites import noted
from weft._lazy.value import Value
from weft._tensor.copying import extras_of, handle_on, owner_that_saves, set_extras
from weft._tensor.shared import segment_of
from weft._tensor.tensor import Tensor, wrap
from weft.utils.data._utils.main import require_importable

if TYPE_CHECKING:
    from weft.utils.data._utils.samples import Batch


def _starts(sizes: Sequence[int]) -> list[int]:
    """The offsets of parts of these sizes, and the end of the last part."""
    return list(accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in sizes), initial=0))


# --- memory ---


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):  # Linux: not limited by the size of /dev/shm
        return os.memfd_create("weft-data")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class SharedSegment:
    """Memory that can grow, shared with the processes that get it at their start."""

    def __init__(self, file: int | None = None) -> None:
        self._file = _anonymous_file() if file is None else file
        self._mapped: mmap.mmap | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return _attached, (DupFd(self._file),)

    def reserve(self, size: int) -> memoryview:
        """A view of at least `size` bytes for writing; the memory grows if necessary, and keeps its contents."""
        if os.fstat(self._file).st_size < size:
            os.ftruncate(self._file, size + size // 4)
        return self.view(size)

    def view(self, size: int) -> memoryview:
        """A view of at least `size` bytes that another process has written."""
        if self._mapped is None or len(self._mapped) < size:
            self._mapped = mmap.mmap(self._file, 0)
        return memoryview(self._mapped)

    def snapshot(self) -> np.ndarray:
        """All bytes, copy-on-write: other processes do not see changes."""
        mapped = mmap.mmap(self._file, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        return np.frombuffer(mapped, np.uint8)

    def close(self) -> None:
        """Unmap and close the memory."""
        self._mapped = None
        os.close(self._file)


def _attached(file: Any) -> SharedSegment:
    return SharedSegment(file.detach())


# --- pickling ---


class _OutOfBandPickler(pickle.Pickler):
    """Pickles elements of tensors and arrays out of band, and locks and queues for a process at its start."""

    def __init__(self, stream: io.BytesIO, buffers: list[pickle.PickleBuffer]) -> None:
        super().__init__(stream, 5, buffer_callback=buffers.append)
        self.dispatch_table = ForkingPickler(stream).dispatch_table

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, Tensor):
            require_importable(obj)
            return NotImplemented
        if owner_that_saves(obj) is not None or segment_of(obj) is not None:
            return NotImplemented  # its parts come here; and what processes share is not copied
        elements = np.ascontiguousarray(obj.detach()._host()).reshape(-1).view(np.uint8)
        out_of_band = pickle.PickleBuffer(elements.data)
        return _tensor_over, (type(obj), obj.dtype, tuple(obj.shape), out_of_band, obj.requires_grad, extras_of(obj))


def _tensor_over(
    kind: type[Tensor],
    dtype: DType,
    shape: tuple[int, ...],
    elements: np.ndarray,
    requires_grad: bool,
    extras: SavedState,
) -> Tensor:
    """A CPU tensor over memory that does not change. XLA, which takes long to start, gets it where it computes."""
    array = np.ndarray(shape, dtype.numpy, buffer=elements)
    handle = handle_on(kind, wrap(noted(Value(aval_of(shape, dtype), array, owner=array))), requires_grad)
    set_extras(handle, extras)
    return handle


def pickled(batch: Batch) -> list[memoryview]:
    """The pickle of an object, followed by its out-of-band buffers."""
    stream, buffers = io.BytesIO(), []
    _OutOfBandPickler(stream, buffers).dump(batch)
    return [stream.getbuffer(), *(buffer.raw() for buffer in buffers)]


def write(segment: SharedSegment, batch: Batch) -> list[int]:
    """Write an object to a segment; returns the sizes that `read` needs."""
    parts = pickled(batch)
    sizes = [part.nbytes for part in parts]
    starts = _starts(sizes)
    memory = segment.reserve(starts[-1])
    for part, start, size in zip(parts, starts, sizes, strict=False):
        memory[start : start + size] = part
    return sizes


def read(segment: SharedSegment, sizes: Sequence[int], *, copy: bool, release: Callable[[], object]) -> Batch:
    """The object that another process has written. Tensors and arrays are copied, or use the segment itself.

    `release` is called when nothing uses the segment any more, so that it can be written to again.
    """
    starts = _starts(sizes)
    memory = on_loan(np.frombuffer(segment.view(starts[-1]), np.uint8), release)
    parts = [memory[start : start + size] for start, size in zip(starts, sizes, strict=False)]
    return pickle.loads(parts[0].data, buffers=[_copy(part) if copy else part.data for part in parts[1:]])


def _copy(part: np.ndarray) -> np.ndarray:
    copied = room(part.size)
    copied[:] = part
    return copied


class WorkerPayload:
    """An object sent to processes at their start, with tensors and arrays in memory that all of them share.

    It is pickled again for each process, because queues and locks require it.
    """

    def __init__(self, content: object) -> None:
        self._content = content
        self._segment = SharedSegment()
        self._end = 0
        self._stored: dict[tuple[int, int], int] = {}  # (address, size) -> offset
        self._kept: list[memoryview] = []  # keeps the addresses from being used again

    def __reduce__(self) -> tuple[object, ...]:
        places = [(self._store(part), part.nbytes) for part in pickled(self._content)]
        return ReceivedPayload, (self._segment, places)

    def _store(self, part: memoryview) -> int:
        key = (np.frombuffer(part, np.uint8).ctypes.data, part.nbytes)
        if key in self._stored:
            return self._stored[key]
        start, self._end = self._end, self._end + _starts([part.nbytes])[-1]
        self._segment.reserve(self._end)[start : start + part.nbytes] = part
        self._stored[key] = start
        self._kept.append(part)
        return start

    def open(self) -> PyTree:
        """The object itself, in a process that was forked: it has what its parent has."""
        return self._content

    def close(self) -> None:
        """Release the memory in this process; the started processes keep it."""
        self._segment.close()


class ReceivedPayload:
    """A payload in the process that has received it."""

    def __init__(self, segment: SharedSegment, places: list[tuple[int, int]]) -> None:
        self._segment = segment
        self._places = places

    def open(self) -> PyTree:
        """The object. Its tensors and arrays use the shared memory; pages that are written to are copied first."""
        memory = self._segment.snapshot()
        self._segment.close()
        parts = [memory[start : start + size] for start, size in self._places]
        return pickle.loads(parts[0].data, buffers=parts[1:])
