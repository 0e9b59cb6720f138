"""NumPy arrays and tensors over the same elements, in external memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft._base.state import ambient
from weft._lazy.aligned import Array, copied
from weft._lazy.checks import report
from weft._lazy.external import External, ExternalMemory, external_value, ownership_lock, user_view
from weft._lazy.reading import host_array
from weft._lazy.role import Interior
from weft._tensor.alias import layout_of, owner_of, path_of
from weft._tensor.base import TensorBase
from weft._tensor.view import external_memory_of, mark_views_stale, set_apart
from weft.errors import ConversionError, ValueRangeError


def array_over(tensor: TensorBase) -> Array:
    """A NumPy array of the elements of a tensor on the CPU. Whoever writes to one of the two writes to the other.

    The storage of the tensor moves to external memory, which the array shows.
    """
    while True:
        owner = owner_of(tensor)
        memory = external_memory_of(owner)
        if memory is None or not memory.whole.flags.writeable:
            move_outside(owner, _copied_memory)
            continue
        outside = memory.whole.base  # so that nobody finds the memory unreferenced while its part is looked for
        array = memory.for_user(_part(tensor, memory))
        del outside
        if array is not None:
            return array


def _part(tensor: TensorBase, memory: ExternalMemory) -> Array:
    """The elements of a tensor in the memory of its storage."""
    if not path_of(tensor):
        return memory.whole
    value = tensor._read()
    if value.aval.external:
        content: External = value.content
        if content.memory is memory:
            return content.array
    layout = layout_of(tensor, exact=True)
    if layout.changed:
        raise ConversionError(
            "Can't call numpy() on Tensor that has conjugate or negative bit set. Use tensor.resolve_conj().numpy() or "
            "tensor.resolve_neg().numpy() instead."
        )
    return memory.part(layout)


def move_outside(owner: TensorBase, place: Callable[[Array], ExternalMemory]) -> None:
    """Move the elements of a tensor that owns its storage to external memory, unless another thread has meanwhile.

    `place` makes the memory, with a copy of the elements.
    """
    value = owner._read()
    elements = host_array(value)
    report(ambient().pending)
    memory = place(elements)
    with ownership_lock:
        if owner._value is not value:
            return
        owner._value = held = external_value(memory, memory.whole, value.aval)
        if isinstance(value.role, Interior):
            set_apart(owner, value)
        else:
            held.role = value.role
        mark_views_stale(owner)


def _copied_memory(elements: Array) -> ExternalMemory:
    return ExternalMemory(copied(elements))


def strided_memory(array: Array) -> ExternalMemory:
    """The memory that an array with strides reaches into, as a dense array of one dim.

    `ValueError` for strides in the middle of elements, which a tensor cannot have.
    """
    width = array.itemsize
    if any(step % width for step in array.strides):
        raise ValueRangeError(
            "given numpy array strides not a multiple of the element byte size. Copy the numpy array to reallocate the "
            "memory."
        )
    count = 1 + sum([(size - 1) * step // width for size, step in zip(array.shape, array.strides, strict=True)])
    return ExternalMemory(user_view(np.lib.stride_tricks.as_strided(array, (count,), (width,)), array))
