"""The contents of calls and answers: a pickle, with the elements of tensors and arrays as out-of-band buffers.

Contents are unpickled only after the peer has proved that it knows the job's key.
"""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import cloudpickle
import numpy as np

from weft._base.device import CPU
from weft._base.device import device as Device
from weft._base.dtype import dtype_named
from weft._base.state import ambient
from weft._base.types import Arg, Result, SavedState
from weft._comm.shared_memory.loans import FrozenBytes
from weft._lazy.aligned import room
from weft._lazy.aval import aval_of
from weft._lazy.value import Value
from weft._tensor.base import new_handle
from weft._tensor.convert import existing
from weft._tensor.copying import extras_of, handle_on, owner_that_saves, set_extras
from weft._tensor.tensor import Tensor, wrap
from weft.distributed.rpc._contexts import ContextMessage, ReceivedTensor
from weft.errors import RpcError

Bytes = bytes | bytearray | memoryview

Buffer: TypeAlias = Bytes | np.ndarray
"""The memory of a tensor, or of an array, in a message."""


def same_device(device: Device) -> Device:
    """Where tensors go that stay on their device."""
    return device


class Receiver(NamedTuple):
    """The receiver of a message.

    map_device  gives the receiver's device for tensors of a device of this worker; it may raise
    message     the message's number in a context of distributed autograd
    """

    worker: Arg
    map_device: Callable[[Device], Device]
    message: ContextMessage | None = None


_LONG = 1 << 12  # bytes from which on an array is put into memory that XLA can use without a copy
_REFUSED = (pickle.PicklingError, AttributeError, TypeError)  # raised by `pickle` for what is not found in a module


def pack(content: object, to: Receiver) -> tuple[bytes, list[memoryview]]:
    """An object as a pickle for a worker, and its out-of-band buffers.

    An object with a method `_reduce_for(worker, undo)` is pickled as that returns; it appends functions to the list
    `undo`, which are called if packing fails. Functions and classes that are not found in a module are sent by value.
    If an object cannot be sent, the error is that of `pickle`.
    """
    pickler = _thread_local.pickler or _Pickler()
    _thread_local.pickler = None  # packing may call code that packs another object
    try:
        return pickler.packed(content, to)
    # Only functions that no module has need cloudpickle, which is far slower, so it comes second.
    except _REFUSED:
        return _WholePickler().packed(content, to)
    finally:
        _thread_local.pickler = pickler


def unpack(body: Bytes, buffers: Sequence[Buffer], reader: Result) -> Result:
    """The object. Buffers that are arrays are used by it without a copy; others are copied."""
    before, _thread_local.reader = _thread_local.reader, reader  # unpickling may call code that reads, too
    try:
        if not buffers:
            return pickle.loads(body)
        return pickle.loads(body, buffers=[_own(buffer) for buffer in buffers])
    finally:
        _thread_local.reader = before


def current_reader() -> Result:
    """The agent whose message this thread unpickles; `RuntimeError` where there is none."""
    if _thread_local.reader is None:
        raise RpcError("this belongs to a worker, and can be unpickled from a message to one alone")
    return _thread_local.reader


def _own(buffer: Buffer) -> Result:
    if isinstance(buffer, np.ndarray):
        return buffer
    if len(buffer) < _LONG:
        return bytearray(buffer)
    memory = room(len(buffer))
    memory[:] = np.frombuffer(buffer, np.uint8)
    return memory


class _Pickler(pickle.Pickler):
    """A pickler for many messages, because creating one takes as long as packing a small message."""

    _to: Receiver

    def __init__(self) -> None:
        self._stream = io.BytesIO()
        self._buffers: list[pickle.PickleBuffer] = []
        self._undo: list[Callable[[], object]] = []  # called if packing fails
        super().__init__(self._stream, 5, buffer_callback=self._buffers.append)

    def packed(self, content: object, to: Receiver) -> tuple[bytes, list[memoryview]]:
        self._to = to
        try:
            self.dump(content)
            return self._stream.getvalue(), [buffer.raw() for buffer in self._buffers]
        except BaseException:
            # Forks and sent tensors were counted while packing; a message that never leaves would keep them for ever.
            for revert in self._undo:
                revert()
            raise
        finally:  # keep no reference to this message
            del self._to
            self.clear_memo()
            self._undo.clear()
            self._buffers.clear()
            self._stream.seek(0)
            self._stream.truncate()

    def reducer_override(self, obj: object) -> Result:
        if isinstance(obj, Tensor):
            if owner_that_saves(obj) is not None:
                return NotImplemented  # its parts come here
            return _reduce_tensor(obj, self._to, self._undo)
        reduce = getattr(type(obj), "_reduce_for", None)
        return NotImplemented if reduce is None else reduce(obj, self._to.worker, self._undo)


class _ThreadLocal(threading.local):
    pickler: _Pickler | None = None  # a pickler that is not in use
    reader: Result = None  # the agent whose message is being unpickled


_thread_local = _ThreadLocal()


class _WholePickler(_Pickler, cloudpickle.Pickler):
    def reducer_override(self, obj: object) -> Result:
        if isinstance(obj, io.IOBase):  # cloudpickle would send the file's contents
            raise TypeError(f"cannot pickle '{type(obj).__module__}.{type(obj).__qualname__}' object")
        reduced = super().reducer_override(obj)
        return cloudpickle.Pickler.reducer_override(self, obj) if reduced is NotImplemented else reduced


def _reduce_tensor(tensor: Tensor, to: Receiver, undo: list[Callable[[], object]]) -> tuple[object, ...]:
    """How a tensor is pickled: as a leaf, or on the tape in a context of distributed autograd."""
    value = tensor._read()
    aval, held = value.aval, value.read()
    elements: Arg = np.ascontiguousarray(held).reshape(-1).view(np.uint8)
    # A type of its own tells the lender that the memory does not change: what is sent again, or to others, is then
    # copied to shared memory once.
    if len(elements) >= _LONG:
        elements = elements.view(FrozenBytes)
        elements.of = held
    out_of_band = pickle.PickleBuffer(elements)
    target_device = to.map_device(aval.device)
    device_name = None if target_device is CPU else str(target_device)
    origin = None
    if to.message is not None and value.role is not None and ambient().grad:
        origin = to.message.send(value, to.worker)
        undo.append(partial(to.message.context.sends.pop, origin.number, None))
    rest = (origin or tensor.requires_grad, extras_of(tensor))
    kind = None if type(tensor) is Tensor else type(tensor)
    if kind is None and not any(rest):
        return _tensor_over, (aval.dtype.name, aval.shape, out_of_band, device_name)
    return _rebuild, (kind, aval.dtype.name, aval.shape, out_of_band, device_name, *rest)


def _tensor_over(dtype: str, shape: tuple[int, ...], elements: Arg, device_name: str | None) -> Tensor:
    """A tensor over memory that does not change."""
    kind, device = dtype_named(dtype), CPU if device_name is None else existing(device_name)
    array = np.ndarray(shape, kind.numpy, elements)
    return wrap(Value(aval_of(tuple(shape), kind, device=device), array))


def _rebuild(
    kind: type[Tensor] | None,
    dtype: str,
    shape: tuple[int, ...],
    elements: Arg,
    device_name: str | None,
    origin: ReceivedTensor | bool,
    extras: SavedState,
) -> Tensor:
    """A tensor of any other kind. `origin` is its `requires_grad`, or the worker to which its gradient is sent."""
    tensor = _tensor_over(dtype, shape, elements, device_name)
    if isinstance(origin, ReceivedTensor):
        value = current_reader().contexts.at(origin.context_id).receive(tensor._read(), origin)
        tensor = wrap(value) if kind is None else new_handle(kind)
        tensor._value = value
    else:
        tensor = handle_on(kind or Tensor, tensor, origin)
    set_extras(tensor, extras)
    return tensor
