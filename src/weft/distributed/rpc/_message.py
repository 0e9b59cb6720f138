"""What travels in a call and in its answer: a pickle, and the elements of tensors and arrays beside it.

What comes from a peer is unpickled, so it is read only after the peer has proved the job's key.
"""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from weft._base.device import CPU
from weft._base.device import device as Device
from weft._base.dtype import dtype_named
from weft._base.state import ambient
from weft._comm.shared_memory.loans import FrozenBytes
from weft._lazy.realize import held_by
from weft._lazy.value import Value, aval_of
from weft._tensor.convert import existing, room
from weft._tensor.copying import extras_of, handle_on
from weft._tensor.tensor import Tensor, wrap
from weft.distributed.rpc._contexts import Message, Received
from weft.distributed.rpc._state import current_agent

Bytes = bytes | bytearray | memoryview


class Receiver(NamedTuple):
    """Who gets a message, where there tensors of a device of this worker go (that may raise), and its context."""

    worker: Any
    place: Callable[[Device], Device]
    message: Message | None = None


_LONG = 1 << 12  # bytes from which on an array is put into memory that XLA takes over
_REFUSED = (pickle.PicklingError, AttributeError, TypeError)  # by `pickle`, of what is no module's


def pack(content: Any, to: Receiver) -> tuple[bytes, list[memoryview]]:
    """An object as a pickle for a worker, and the memory that it leaves out.

    Objects whose class has `_reduce_for` are asked for their reduction with the worker, and a list for what is to be
    called where the message is not made; `pickle` does the same without.

    Functions and classes that no module has are sent whole. The error of an object that cannot be sent is `pickle`'s.
    """
    pickler = _thread.pickler or _Pickler()
    _thread.pickler = None  # what packing calls may pack something itself
    try:
        return pickler.packed(content, to)
    except _REFUSED:
        return _WholePickler().packed(content, to)
    finally:
        _thread.pickler = pickler


def unpack(body: Bytes, buffers: Sequence[Bytes | np.ndarray[Any, Any]]) -> Any:
    """The object. Buffers that are arrays become its own; others are copied."""
    if not buffers:
        return pickle.loads(body)
    return pickle.loads(body, buffers=[_own(buffer) for buffer in buffers])


def _own(buffer: Bytes | np.ndarray[Any, Any]) -> Any:
    if isinstance(buffer, np.ndarray):
        return buffer
    if len(buffer) < _LONG:
        return bytearray(buffer)
    memory = room(len(buffer))
    memory[:] = np.frombuffer(buffer, np.uint8)
    return memory


class _Pickler(pickle.Pickler):
    """Packs one message after the other; to make a pickler takes as long as a small message."""

    _to: Receiver

    def __init__(self) -> None:
        self._stream = io.BytesIO()
        self._buffers: list[pickle.PickleBuffer] = []
        self._handed: list[Callable[[], object]] = []  # what takes back what was handed over
        super().__init__(self._stream, 5, buffer_callback=self._buffers.append)

    def packed(self, content: Any, to: Receiver) -> tuple[bytes, list[memoryview]]:
        self._to = to
        try:
            self.dump(content)
            return self._stream.getvalue(), [buffer.raw() for buffer in self._buffers]
        except BaseException:
            for take_back in self._handed:
                take_back()
            raise
        finally:  # nothing of this message is kept
            del self._to
            self.clear_memo()
            self._handed.clear()
            self._buffers.clear()
            self._stream.seek(0)
            self._stream.truncate()

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            return _reduced(obj, self._to, self._handed)
        reduce = getattr(type(obj), "_reduce_for", None)
        return NotImplemented if reduce is None else reduce(obj, self._to.worker, self._handed)


class _Thread(threading.local):
    pickler: _Pickler | None = None  # one that is not in use


_thread = _Thread()


class _WholePickler(_Pickler, cloudpickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, io.IOBase):  # cloudpickle would send what is in the file
            raise TypeError(f"cannot pickle '{type(obj).__module__}.{type(obj).__qualname__}' object")
        reduced = super().reducer_override(obj)
        return cloudpickle.Pickler.reducer_override(self, obj) if reduced is NotImplemented else reduced


def _reduced(tensor: Tensor, to: Receiver, handed: list[Callable[[], object]]) -> tuple[Any, ...]:
    """How a tensor is pickled: as a leaf; in a context of distributed autograd, on the tape."""
    value = tensor._read()
    aval, held = value.aval, held_by(value)
    elements: Any = np.ascontiguousarray(held).reshape(-1).view(np.uint8)
    if len(elements) >= _LONG:
        elements = elements.view(FrozenBytes)
        elements.of = held
    put_aside = pickle.PickleBuffer(elements)
    there = to.place(aval.device)
    where = None if there is CPU else str(there)
    come = None
    if to.message is not None and value.tape is not None and ambient().grad:
        come = to.message.send(value, to.worker)
        handed.append(partial(to.message.context.sends.pop, come.number, None))
    rest = (come or tensor.requires_grad, extras_of(tensor))
    kind = None if type(tensor) is Tensor else type(tensor)
    if kind is None and not any(rest):
        return _plain, (aval.dtype.name, aval.shape, put_aside, where)
    return _rebuilt, (kind, aval.dtype.name, aval.shape, put_aside, where, *rest)


def _plain(dtype: str, shape: tuple[int, ...], elements: Any, where: str | None) -> Tensor:
    """A tensor over memory that nobody writes to."""
    kind, device = dtype_named(dtype), CPU if where is None else existing(where)
    array = np.ndarray(shape, kind.numpy, elements)
    return wrap(Value(aval_of(tuple(shape), kind, device=device), array))


def _rebuilt(
    kind: type[Tensor] | None, dtype: str, shape: tuple[int, ...], elements: Any, where: str | None,
    origin: Received | bool, extras: dict[str, Any],
) -> Tensor:  # fmt: skip
    """Any other tensor: `origin` says whether it needs a gradient, or where that goes to."""
    tensor = _plain(dtype, shape, elements, where)
    if isinstance(origin, Received):
        value = current_agent().contexts.at(origin.context_id).receive(tensor._read(), origin)
        tensor = wrap(value) if kind is None else object.__new__(kind)
        tensor._value = value
    else:
        tensor = handle_on(kind or Tensor, tensor, origin)
    tensor.__dict__.update(extras)
    return tensor
