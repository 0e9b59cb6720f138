"""Python's and NumPy's protocols: `copy.copy`, `in`, results of NumPy functions, buffers."""

from __future__ import annotations

import numbers
import os
from typing import Any

import numpy as np

from weft._base.device import DeviceLike
from weft._base.dtype import DType, as_dtype
from weft._base.layout import layout
from weft._base.numpy_guards import ARRAY
from weft._base.state import default_dtype
from weft._base.types import Arg
from weft._tensor.convert import (
    existing,
    from_host,
    from_numpy_array,
    tensor,
    tensor_over,
)
from weft._tensor.copying import extras_of, set_extras
from weft._tensor.dlpack import from_dlpack, is_capsule
from weft._tensor.kind_names import advice
from weft._tensor.shared import file_tensor
from weft._tensor.sharing import of_class
from weft._tensor.storage import UntypedStorage, elements_of
from weft._tensor.tensor import Tensor, wrap
from weft._tensor.view import own
from weft.errors import DTypeError, ValueRangeError
from weft.ops._type_names import scalar_name


def copied(self: Tensor) -> Tensor:
    """`copy.copy`: a leaf that shares the elements and the attributes set by users."""
    result = of_class(type(self), self.detach())
    set_extras(result, extras_of(self))
    return result.requires_grad_(self.requires_grad)


def contains(self: Tensor, element: object) -> bool:
    """Whether an element equals `element`, a number or a tensor that broadcasts. Waits for the elements."""
    if not isinstance(element, (Tensor, numbers.Number, np.generic)):
        raise DTypeError(
            f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}{advice(element)}."
        )
    return bool((self == element).any())


def wrapped(self: Tensor, array: np.ndarray, context: object = None, return_scalar: bool = False) -> Tensor:
    """The result of NumPy functions of tensors as a tensor; as in PyTorch, `uint8` for booleans."""
    del context, return_scalar
    return from_host(array.astype(np.uint8) if array.dtype == np.bool_ else array, self.device)


# --- buffers --------------------------------------------------------------------------------------------------


def frombuffer(buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A vector of a buffer's elements, from byte `offset` on; `count` of them, or all.

    As with `from_numpy`, who writes to the buffer writes to the tensor, and the reverse.
    """
    try:
        content = memoryview(buffer).cast("B")
    except TypeError:
        raise ValueRangeError("object does not implement Python buffer protocol.") from None
    size, width = len(content), as_dtype(dtype).itemsize
    if not size or not count:
        raise ValueRangeError(f"both buffer length ({size}) and count ({count}) must not be 0")
    if not 0 <= offset < size:
        raise ValueRangeError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({size} bytes) minus 1"
        )
    if count > 0 and offset + count * width > size:
        raise ValueRangeError(
            f"requested buffer length ({count} * {width} bytes) after offset ({offset} bytes) must not be greater than "
            f"actual buffer length ({size} bytes)"
        )
    if count < 0 and (size - offset) % width:
        raise ValueRangeError(
            f"buffer length ({size - offset} bytes) after offset ({offset} bytes) must be a multiple of element size "
            f"({width})"
        )
    array = np.frombuffer(content, dtype.numpy, max(count, -1), offset)
    return tensor_over(array, kind="buffer")._require_grad(requires_grad)


def from_file(
    filename: str | os.PathLike[str],
    shared: bool | None = None,
    size: int = 0,
    *,
    dtype: DType | None = None,
    layout: layout | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
) -> Tensor:
    """A vector of the first `size` elements in a file, which are read when they are needed.

    With `shared`, writes to the tensor are writes to the file, which is made or extended if necessary; else they do not
    change the file, which must not change then. `RuntimeError` for a file that is not there or too short.
    """
    del layout, device, pin_memory  # as in PyTorch, only tensors on the CPU are mapped
    return file_tensor(os.fspath(filename), size, dtype or default_dtype(), shared=bool(shared))


def asarray(
    obj: object,
    *,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """A tensor from a tensor, an array (of NumPy, jax, or any other that supports DLPack), a buffer, or numbers.

    Elements are shared if that is possible (see `from_numpy` and `from_dlpack`), unless `copy`; with `copy=False`, a
    necessary copy is a `ValueError`. A buffer has elements of `dtype`, or else of the default type; so has an
    untyped storage, which is a sequence of its bytes without `dtype`. A tensor keeps its history, and its
    `requires_grad` unless the argument is given.
    """
    source = _shared(obj, dtype)
    if source is None:
        if copy is False:
            raise ValueRangeError("can't alias arbitrary sequence into a tensor.")
        return tensor(obj, dtype=dtype, device=device, requires_grad=bool(requires_grad))
    wanted = source.dtype if dtype is None else dtype
    target = source.device if device is None else existing(device)
    result = source
    if target != source.device or wanted is not source.dtype:
        _check_may_copy(source, wanted, target, copy)
        result = source.detach().to(dtype=wanted, device=target)
    elif copy:
        result = source.clone()
    if requires_grad is None or requires_grad is (result.requires_grad and result.is_leaf):
        return result
    return (result if result.is_leaf and requires_grad else wrap(own(result._read())))._require_grad(requires_grad)


def _shared(obj: Arg, dtype: DType | None) -> Tensor | None:
    """A tensor that shares the elements of an object in memory; None for numbers and sequences."""
    if isinstance(obj, Tensor):
        return obj
    if isinstance(obj, ARRAY):
        return tensor_over(obj)
    if isinstance(obj, UntypedStorage):  # without a type, it is a sequence of its bytes
        return None if dtype is None else elements_of(obj, dtype)
    if isinstance(obj, np.generic):
        return None
    if is_capsule(obj) or hasattr(obj, "__dlpack__"):
        return from_dlpack(obj)
    if hasattr(obj, "__array_interface__"):
        return from_numpy_array(np.asarray(obj))
    try:
        memoryview(obj)
    except TypeError:
        return None
    return frombuffer(obj, dtype=default_dtype() if dtype is None else dtype)


def _check_may_copy(source: Tensor, wanted: DType, target: object, copy: bool | None) -> None:
    if copy is False:
        if target != source.device:
            raise ValueRangeError(f"can't alias tensor from device '{source.device}' to '{target}'.")
        raise ValueRangeError(
            f"can't alias tensor with dtype '{scalar_name(source.dtype)}' into dtype '{scalar_name(wanted)}'."
        )
