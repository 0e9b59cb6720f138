"""External memory: elements that others may write to, such as those of a NumPy array that its user still holds.

Values never change, so no operator gets such memory as its input: the general path of calls sees by the type
(`Aval.external`) that an input is external, and takes in its elements. That is a copy, made when the operator is
recorded, so what is written to the memory later does not reach the operator. A view of external memory is external
itself, and copies nothing.

Once nobody but Weft refers to the memory, it is Weft's own: the value becomes a plain one that has the elements,
without a copy. So a batch of a data loader, or an array that its user drops after `from_numpy`, costs nothing.
"""

from __future__ import annotations

import threading
import weakref
from sys import getrefcount
from typing import Any

import numpy as np

from weft._base.capture import active_capture
from weft._base.device import CPU
from weft._base.forks import hold_over_forks
from weft._base.state import Ambient
from weft._lazy import refcounts
from weft._lazy.aligned import Array, address_of, copied
from weft._lazy.aval import Aval, in_memory
from weft._lazy.infer import Call, signature_of
from weft._lazy.interpreted import evaluated
from weft._lazy.interpreter import quiet
from weft._lazy.layouts import layout_after
from weft._lazy.reading import host_array
from weft._lazy.record import record
from weft._lazy.value import Doubt, StandIn, Value, tick
from weft.ops._strides import Layout

ownership_lock = threading.RLock()
"""Held while memory is given to Weft or to a user, so that one thread cannot do the one while another does the other.

It is reentrant, since finalizers may run within."""
hold_over_forks(ownership_lock)


class _InternalView(np.ndarray[Any, Any]):
    """Weft's own views of memory.

    NumPy lets a view refer to the array that owns the memory, past all views between, but not past an array of another
    class. So all views of this class refer to the first, and only that refers to the user's array: whatever else does
    is somebody outside.
    """


class _ArrayInterface:
    """A part of an array, by the protocol of arrays: NumPy lets what it makes of it refer to this, and so to `base`."""

    __slots__ = ("__array_interface__", "base")

    def __init__(self, part: Array, base: Array) -> None:
        self.__array_interface__ = {**part.__array_interface__, "strides": part.strides}  # None where they are in order
        self.base = base


def user_view(part: Array, base: Array) -> Array:
    """`part` as an array of NumPy's own class that refers to `base`, which has the memory."""
    return np.asarray(_ArrayInterface(part, base)).view(part.dtype)  # the protocol has no names for types of extensions


class ExternalMemory:
    """Memory to which Weft and others have access.

    whole    all of it, as a dense array of Weft's
    private  whether it is Weft's own by now
    shared   what gives other processes access to it, who cannot be counted; or None
    """

    __slots__ = ("private", "shared", "whole")

    def __init__(self, array: Array, *, shared: object = None) -> None:
        self.whole: Array = np.ndarray.view(array, _InternalView)
        self.private = False
        self.shared = shared

    @property
    def address(self) -> int:
        """The address of the first byte."""
        return address_of(self.whole)

    def becomes_private(self) -> bool:
        """Whether nobody else refers to the memory; then it is Weft's own from now on."""
        if self.private:
            return True
        with ownership_lock:
            self.private = self.shared is None and _is_unreferenced(self.whole)
        return self.private

    def write(self, part: Array, value: Value) -> bool:
        """Write the elements of a value to a part of the memory, at once; False if the memory is read-only."""
        if not part.flags.writeable:
            return False
        active_capture().needs_value("to write to memory that others see")
        part[...] = host_array(value)  # which may raise what checks have found: before anything is written
        return True

    def for_user(self, part: Array) -> Array | None:
        """A part of the memory as an array for a user; None if the memory is Weft's own by now."""
        with ownership_lock:
            if self.private:
                return None
            outside: Any = self.whole.base
            return np.ndarray.view(outside, np.ndarray) if part is self.whole else user_view(part, outside)

    def part(self, layout: Layout, start: int = 0) -> Array:
        """The elements at a layout, which is counted from the byte `start` on, as an array of Weft's."""
        if 0 in layout.sizes:  # whose offset may be behind the end
            return np.empty(layout.sizes, layout.dtype.numpy).view(_InternalView)
        content = self.whole.reshape(-1).view(np.uint8)
        width = layout.dtype.itemsize
        strides = tuple([step * width for step in layout.strides])
        return np.ndarray.__new__(
            _InternalView, layout.sizes, layout.dtype.numpy, content, start + int(layout.offset) * width, strides
        )


def writable(array: Array) -> Array:
    """An array with the same memory that may be written to, where NumPy does not know whether it may."""
    whole = _ArrayInterface(array, array)
    address, _ = whole.__array_interface__["data"]
    whole.__array_interface__ = {**whole.__array_interface__, "data": (address, False)}
    return np.asarray(whole).view(array.dtype)


def _is_unreferenced(whole: Array) -> bool:
    """Whether nothing refers to what Weft's view shows, or to what that shows in turn, but this chain.

    Only such objects are followed of which it is known that whoever reaches their memory refers to them. Others, as the
    capsules of libraries, may have memory that is still written to.
    """
    own = 1 + refcounts.IN_A_LOCAL  # the chain
    here: Any = whole.base
    while getrefcount(here) == own:
        if isinstance(here, np.ndarray):
            if isinstance(here, np.memmap) or weakref.getweakrefcount(here):
                return False
            if here.base is None:
                return here.flags.owndata
            here = here.base
        elif type(here) is _ArrayInterface:
            here = here.base
        elif type(here) is memoryview:
            here = here.obj
        else:
            return type(here) in (bytes, bytearray)
    return False


class External(StandIn):
    """The content of a value whose elements are in memory that others may write to.

    memory  where they are
    array   the elements there, as they are now
    doubts  none, for a program that reads the value past the path of calls: it gets a copy (`for_program`)
    _copy   the last copy that was taken in, as long as somebody refers to it
    """

    __slots__ = ("_copy", "array", "memory")
    doubts: tuple[Doubt, ...] = ()

    def __init__(self, memory: ExternalMemory, array: Array) -> None:
        self.memory = memory
        self.array: Array = array
        self._copy: weakref.ref[Value] | None = None

    @property
    def start(self) -> int:
        """The first byte in the memory."""
        return address_of(self.array) - self.memory.address

    def wait(self, value: Value, /) -> Any:
        return taken_in(value).content

    def for_program(self) -> Array:
        return copied(self.array)

    def copied(self, value: Value) -> Value:
        """A plain value with the present elements.

        It is the same one as before if that still lives and nobody has written since. To compare costs what a copy
        does, but a step that reads a batch twenty times has its elements once.
        """
        aval = in_memory(value.aval, False)
        last = None if self._copy is None else self._copy()
        if last is not None and last.aval is aval and last.role is value.role and _equal(last.content, self.array):
            return last
        copy = Value(aval, copied(self.array))
        copy.role = value.role
        copy.time = tick()
        self._copy = weakref.ref(copy)
        return copy


def _equal(one: Any, other: Array) -> bool:
    """Whether two arrays of one type have the same bytes, as NaN and -0.0 are compared by these."""
    if not isinstance(one, np.ndarray):  # it has been moved to its device
        one = np.asarray(one)
    if other.flags.c_contiguous:
        width = np.uint64 if other.nbytes % 8 == 0 else np.uint8
        return bool(np.logical_and.reduce(one.reshape(-1).view(width) == other.reshape(-1).view(width)))
    return one.tobytes() == other.tobytes()


def taken_in(value: Value) -> Value:
    """A value of the same elements that nobody outside can change: `value` itself, unless it is external."""
    if not value.aval.external:
        return value
    content: External = value.content
    if not content.memory.becomes_private():
        return content.copied(value)
    array = content.array.view(np.ndarray)
    value.aval = in_memory(value.aval, False)
    value.owner = content.memory  # so that XLA does not overwrite a part of what other values show, too
    value.content = array
    return value


def external_value(memory: ExternalMemory, array: Array, aval: Aval) -> Value:
    """A value of a type whose elements are in memory, where `array` shows them."""
    value = Value(in_memory(aval, True), External(memory, array))
    value.time = tick()
    return value


_LEAST_READ = 1 << 16  # bytes of a part from which on it may be worth not to copy it
_LARGER = 8  # how many times larger it has to be than what is computed of it


def computed_at_once(call: Call, inputs: tuple[Value, ...], state: Ambient) -> tuple[Value, ...] | None:
    """The results of a call that reads much and gives little, computed now, so that nothing has to be copied.

    So a program that keeps an array and takes batches of its tensor by index (`x[permutation[:32]]`) does not copy or
    compare the whole for each. None for other calls, and where a derivative would read the elements later.
    """
    largest = max([x.aval.nbytes for x in inputs if x.aval.external])
    if largest < _LEAST_READ or state.watched or (state.grad and any(x.role is not None for x in inputs)):
        return None
    if any(x.aval.owner is not None or x.aval.device is not CPU for x in inputs):
        return None
    signature = signature_of(call, tuple([in_memory(x.aval, False) for x in inputs]))
    output, *others = signature.outputs
    if others or output.aval.nbytes * _LARGER > largest:
        return None
    for x in inputs:
        if not x.aval.external:
            x.read()
    (result,) = record(signature, tuple(map(_as_it_is, inputs)), state)
    with quiet():  # by NumPy, since XLA would copy what does not lie as it wants
        array = evaluated(output, result.inputs)
    if array is None:
        array = np.asarray(result.read())
    result.content = array.copy() if array.base is not None else array  # it may be a part of the memory
    return (result,)


def _as_it_is(value: Value) -> Value:
    """A plain value that shows the memory itself, for a program that is run at once."""
    if not value.aval.external:
        return value
    content: External = value.content
    return Value(in_memory(value.aval, False), content.array.view(np.ndarray), owner=content.memory)


def view_of(call: Call, inputs: tuple[Value, ...], state: Ambient) -> Value | None:
    """The result of a view operator on external memory: external, too. None for other calls.

    So where gradients flow or a program is recorded, views have the elements that are there when they are made.
    """
    source, *others = inputs
    if (
        call.op.view is None
        or call.op.types.result is not None
        or not source.aval.external
        or state.capture is not None
    ):
        return None  # the second are views that give an owner, which would take over calls on them
    if (state.grad and source.role is not None) or not all(x.aval.weak for x in others):
        return None
    content: External = source.content
    memory, array, dtype = content.memory, content.array, source.aval.dtype
    signature = signature_of(call, (in_memory(source.aval, False), *[x.aval for x in others]))
    if memory.private or signature.requirement is not None:
        return None
    aval, host = signature.outputs[0].aval, signature.execution.host
    if host is not None:  # it has checked bounds, and is quicker
        return external_value(memory, host(array, *[x.number for x in others]), aval)
    strides = tuple([step // array.itemsize for step in array.strides])
    layout = layout_after(Layout(array.shape, strides, 0, dtype), call, tuple(others))
    if layout is None or layout.changed:
        return None
    return external_value(memory, memory.part(layout, content.start), aval)
