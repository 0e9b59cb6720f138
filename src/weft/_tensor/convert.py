"""Tensors from data, and data from tensors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weft._base.device import CPU, META, DeviceLike, canonical, default_device
from weft._base.device import device as device_class
from weft._base.dtype import (
    BOOL,
    COMPLEX,
    FLOAT,
    INTEGER,
    DType,
    as_dtype,
    bool_,
    complex128,
    float32,
    float64,
    from_numpy,
    int64,
    promote_types,
    uint64,
)
from weft._base.guards import is_list
from weft._base.limits import limits
from weft._base.numpy_guards import ARRAY, NUMPY_NUMBER
from weft._base.of_pytorch import is_of_pytorch
from weft._base.overriding import Overridden, raise_operator
from weft._base.site import UNTIL_USER, end_at_user, warn_user
from weft._base.state import ambient, default_dtype
from weft._base.types import Arg
from weft._lazy.aligned import ALIGNMENT, copied
from weft._lazy.aval import Aval, aval_of, marked, named
from weft._lazy.external import ExternalMemory, external_value, taken_in
from weft._lazy.moving import moved_value, put
from weft._lazy.native import native
from weft._lazy.runtime import device_of, jax_device
from weft._tensor.alias import strided_step
from weft._tensor.base import Alias
from weft._tensor.dim_names import checked_names, set_names
from weft._tensor.external import strided_memory
from weft._tensor.kind_names import advice, kind_and_advice
from weft._tensor.leaf import leaf
from weft._tensor.overriding import dispatched, require_not_overridden
from weft._tensor.tensor import Tensor, operand, wrap
from weft._tensor.view import attach, own
from weft._tensor.write_checks import check_names
from weft.errors import ArgumentError, DTypeError, IntegerRangeError, ValueRangeError
from weft.ops._dims import Names
from weft.ops._strides import Layout, row_major


def resolve_device(device: Arg) -> device_class:
    """A device from a device, a string, an index, or None for the default."""
    target = default_device() if device is None else device
    return CPU if target is None else existing(target)


def existing(device: DeviceLike) -> device_class:
    """A device, checked to exist on this machine; `RuntimeError` otherwise."""
    target = canonical(device)
    if target is not CPU and target is not META:
        if ambient().overrides.dispatchers:  # fake tensors may be on devices that this machine has not
            raise_operator()
        jax_device(target)
    return target


def from_host(array: np.ndarray, device: object = None) -> Tensor:
    """A tensor on a device, with a copy of a NumPy array's elements."""
    target = resolve_device(device)
    dtype = type_of(array)
    own = copied(array)
    held = own if target is CPU else put(own, target)
    return _leaf(aval_of(tuple(array.shape), dtype, device=target), held)


def rows_of(array: np.ndarray, dtype: DType, names: Names) -> list[Tensor]:
    """New tensors on the CPU of the parts of an array along its first dim, which nobody else holds."""
    aval = named(marked(aval_of(array.shape[1:], dtype), ambient().inference), names)
    return [wrap(leaf(aval, array[at, ...], owner=array)) for at in range(len(array))]


def type_of(array: np.ndarray | np.generic) -> DType:
    """The type of a NumPy array's elements; `TypeError` or `ValueError` if there is no such type here."""
    if not array.dtype.isnative:
        raise ValueRangeError(
            "given numpy array has byte order different from the native byte order. Conversion between byte orders is "
            "currently not supported."
        )
    try:
        return from_numpy(array.dtype)
    except ArgumentError:
        raise ArgumentError(
            f"can't convert np.ndarray of type numpy.{array.dtype.type.__name__}. The only supported types are: "
            "float64, float32, float16, complex64, complex128, int64, int32, int16, int8, uint64, uint32, uint16, "
            "uint8, and bool."
        ) from None


def tensor(
    data: object,
    *,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    names: Sequence[str | None] | None = None,
) -> Tensor:
    """A new leaf with a copy of `data`: numbers, nested sequences, NumPy arrays, or tensors.

    Python floats get the default type, ints `int64`. `ValueError` for nested sequences of unequal lengths.
    """
    try:
        if device is None and names is None:
            result = new_tensor(data, dtype)
            if result is not None:
                return result._require_grad(True) if requires_grad else result
        if isinstance(data, Tensor):
            warnings.warn(
                "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
                "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor).",
                stacklevel=2,
            )
            result = data.detach().clone()
            result = result.to(dtype=dtype or data.dtype, device=data.device if device is None else device)
            result = wrap(own(taken_in(result._read())))
            return _with_names(result, names)._require_grad(requires_grad)
        if isinstance(dtype, DType) and dtype.is_quantized:
            raise DTypeError(f"tensor(): {dtype} is the type of what torch.quantize_per_tensor makes of floats")
        if isinstance(dtype, DType) and dtype.is_float8:
            result = tensor(data, dtype=float32, device=device, names=names).to(dtype)
        else:
            result = _with_names(from_host(_host_array(data, dtype), device), names)
        return result._require_grad(True) if requires_grad else result
    except Overridden as signal:
        return dispatched(signal)
    except UNTIL_USER as error:
        end_at_user(error)
        raise


def _no_new_tensor(data: object, dtype: DType | None) -> Tensor | None:
    """Takes the place of what the extension has for numbers, which returns None for all else."""


new_tensor = _no_new_tensor
if native is not None:
    native.bind(default_dtype=default_dtype)
    new_tensor = native.new_tensor


def _with_names(new: Tensor, names: Sequence[str | None] | None) -> Tensor:
    if names is None:
        return new
    checked = checked_names(names, new.ndim)
    check_names(new._read().aval.names, checked)  # of a copy of a tensor
    return set_names(new, checked)


def _host_array(data: Arg, dtype: DType | None) -> np.ndarray:
    wanted = None if dtype is None else as_dtype(dtype, float64)
    if isinstance(data, _SEQUENCES):
        return _nested(data, wanted)
    if isinstance(data, _NUMBERS) and not isinstance(data, NUMPY_NUMBER):
        return _numbers(data, wanted)
    if isinstance(data, str):
        raise ArgumentError("new(): invalid data type 'str'")
    if isinstance(data, ARRAY):
        refuse_negative_strides(data)
    elif not isinstance(data, NUMPY_NUMBER) and not hasattr(data, "__array__"):
        if isinstance(data, bytes):
            raise ArgumentError("new(): invalid data type 'bytes'")
        if hasattr(data, "__dlpack__") and not is_of_pytorch(data.__class__):
            return _host_array(np.from_dlpack(data), dtype)
        if _is_sequence(data):
            return _nested(_as_list(data), wanted)
        require_not_overridden(data)
        raise DTypeError(
            f"Could not infer dtype of {type(data).__name__}; numbers, sequences and arrays are taken{advice(data)}"
        )
    array: np.ndarray = np.asarray(data)
    return _cast(array, wanted or type_of(array))


_SEQUENCES: tuple[type, ...] = (list, tuple, range)
_NUMBERS: tuple[type, ...] = (bool, int, float, complex)
_NO_SEQUENCES: tuple[type, ...] = (str, bytes, dict, np.ndarray, np.generic, Tensor)


def _is_sequence(data: object) -> bool:
    """Whether an object can be indexed like a list, as deques can."""
    if isinstance(data, _SEQUENCES):
        return True
    if isinstance(data, _NO_SEQUENCES):
        return False
    return hasattr(data, "__len__") and hasattr(data, "__getitem__") and not hasattr(data, "__array__")


_MOST_DIMS = 128


def refuse_negative_strides(array: np.ndarray) -> None:
    """Raise `ValueError` for an array with negative strides, as PyTorch does."""
    if any(step < 0 for step in array.strides):
        raise ValueRangeError(
            "At least one stride in the given numpy array is negative, and tensors with negative strides are not "
            "currently supported. (You can probably work around this by making a copy of your array  with "
            "array.copy().) "
        )


def _as_list(data: Arg) -> list[Arg]:
    """The items of an object that can be indexed like a list."""
    try:
        return [data[at] for at in range(len(data))]
    except Exception:
        raise ValueRangeError(f"could not determine the shape of object type '{type(data).__name__}'") from None


def _nested(data: Sequence[object], wanted: DType | None) -> np.ndarray:
    """An array from nested sequences, whose innermost entries are numbers, one-element tensors, or arrays."""
    shape: list[int] = []
    level: Arg = data
    while _is_sequence(level):
        shape.append(len(level))
        if not level:
            break
        if len(shape) > _MOST_DIMS:  # a list that contains itself
            raise ValueRangeError(f"too many dimensions '{type(level).__name__}'")
        level = level[0]
    flat: list[Arg] = []
    _flatten(data, shape, 0, flat)
    if not flat:
        return np.zeros(shape, (wanted or default_dtype()).numpy)
    flat = [x[()] if isinstance(x, np.ndarray) and not x.ndim else x for x in flat]
    if any(isinstance(x, np.ndarray) for x in flat):
        return _stacked(flat, wanted, len(shape)).reshape((*shape, *np.shape(flat[0])))
    if any(isinstance(x, Tensor) for x in flat):
        flat = [_element(x) if isinstance(x, Tensor) else x for x in flat]
    return _numbers(flat, wanted).reshape(shape)


def _stacked(entries: Sequence[Arg], wanted: DType | None, depth: int) -> np.ndarray:
    """The entries at one depth of a nested sequence, some of which are arrays, as one array."""
    arrays = [x.detach()._host() if isinstance(x, Tensor) else np.asarray(x) for x in entries]
    first = arrays[0].shape
    for array in arrays:
        if array.shape != first:
            raise ValueRangeError(f"expected entries of one shape at dim {depth}, got {first} and {array.shape}")
    return _cast(np.stack(arrays), wanted or reduce(promote_types, {type_of(x) for x in arrays}))


def _element(x: Tensor) -> np.generic:
    """The element of a one-element tensor, with its type."""
    if x.numel() != 1:
        raise ValueRangeError("only one element tensors can be converted to Python scalars; stack() takes larger ones")
    return x.detach()._host().reshape(-1)[0]


def _flatten(data: Arg, shape: list[int], depth: int, out: list[Arg]) -> None:
    if depth == len(shape):
        if _is_sequence(data):
            if not (out and isinstance(out[0], np.ndarray)):
                raise ArgumentError(f"expected a number at dim {depth}, got a sequence of length {len(data)}")
            data = _nested(data, None)  # a list beside arrays
        out.append(data)
        return
    if isinstance(data, ARRAY) and data.ndim:  # an array beside lists
        data = list(data)
    if not _is_sequence(data):
        raise ArgumentError(f"not a sequence: expected length {shape[depth]} at dim {depth}, got {data!r}")
    if len(data) != shape[depth]:
        raise ValueRangeError(f"expected sequence of length {shape[depth]} at dim {depth} (got {len(data)})")
    if depth == len(shape) - 1 and shape[depth] and not any(isinstance(x, _SEQUENCES) for x in data):
        out.extend(data)
        return
    for item in data:
        _flatten(item, shape, depth + 1, out)


_WIDEST = {BOOL: bool_, INTEGER: int64, FLOAT: float64, COMPLEX: complex128}


def _numbers(data: Arg, wanted: DType | None) -> np.ndarray:
    """A number, or a list of numbers, with the type `wanted` or the one that PyTorch infers."""
    kinds = set(map(type, data)) if is_list(data) else {type(data)}
    if str in kinds and not isinstance(data[0], str):
        raise ArgumentError("new(): invalid data type 'str' among numbers")
    inferred = reduce(promote_types, map(_inferred, kinds))
    unsigned = uint64 in (wanted, inferred) and inferred.category == INTEGER
    try:
        array = np.asarray(data, (uint64 if unsigned else _WIDEST[inferred.category]).numpy)
    except OverflowError as error:
        if wanted is not None and wanted.is_differentiable:
            return np.asarray(data, object).astype(wanted.numpy)
        raise IntegerRangeError("Overflow when unpacking long long: an integer does not fit the type") from error
    target = wanted or inferred
    if target.category == INTEGER and array.dtype != target.numpy:
        least, most = limits(target)
        if not ((array >= (least or -most)) & (array <= most)).all():  # negative numbers wrap around in unsigned types
            raise DTypeError(f"value cannot be converted to type {target.name} without overflow")
    return _cast(array, target)


def _inferred(kind: type[object]) -> DType:
    """The inferred type of a tensor of numbers of one Python or NumPy class."""
    if issubclass(kind, np.generic):
        return from_numpy(kind)
    for python in (bool, int, float, complex):
        if issubclass(kind, python):
            return as_dtype(python, default_dtype())
    if kind is str:
        raise ValueRangeError("too many dimensions 'str'")
    way = "; make a tensor of each entry with weft.from_dlpack(x)" if hasattr(kind, "__dlpack__") else ""
    raise DTypeError(f"Could not infer dtype of {kind.__name__}{way}")


def _cast(array: np.ndarray, dtype: DType) -> np.ndarray:
    if array.dtype.kind == "c" and dtype.category < COMPLEX and dtype is not bool_:
        raise ArgumentError(f"must be real number, not complex: a tensor of type {dtype.name} takes no other")
    if array.dtype == dtype.numpy:
        return array
    with np.errstate(over="ignore", invalid="ignore"):  # a float that is too large becomes infinite
        return array.astype(dtype.numpy, copy=False)


def as_tensor(data: Arg, dtype: DType | None = None, device: Arg = None) -> Tensor:
    """`data` itself if it is a tensor of that type on that device; `from_numpy(data)` for an array; else a copy."""
    try:
        if isinstance(data, Tensor):
            return data.to(dtype=dtype or data.dtype, device=data.device if device is None else device)
        if isinstance(data, ARRAY) and resolve_device(device) is CPU and dtype in (None, _type_or_none(data)):
            return tensor_over(data)
        return tensor(data, dtype=dtype, device=device)
    except Overridden as signal:
        return dispatched(signal)
    except UNTIL_USER as error:
        end_at_user(error)
        raise


def _type_or_none(array: np.ndarray) -> DType | None:
    return type_of(array) if array.dtype.kind in "biufcV" and array.dtype.isnative else None


def tensor_over(array: np.ndarray[Any, Any], *, kind: str = "NumPy array") -> Tensor:
    """A tensor of the elements of a NumPy array: whoever writes to one of the two writes to the other.

    Operators get the elements that are there when they are called. To part the two, use `torch.tensor(array)`, which
    copies. A read-only array is never written to: the tensor gets elements of its own by the first write, and a warning
    says so, which calls the array a `kind`. `TypeError` for anything but an array of numbers, `ValueError` for strides
    that a tensor cannot have.

    A program that keeps the array while it computes with the tensor pays a copy of the elements for each use, and none
    once it has dropped the array.
    """
    if not isinstance(array, ARRAY):
        raise ArgumentError(f"expected np.ndarray (got {kind_and_advice(array)})")
    refuse_negative_strides(array)
    dtype = type_of(array)
    state = ambient()
    if not array.size or state.capture is not None:  # a constant of what is captured
        return from_host(array, CPU)
    if not array.flags.writeable:
        warn_user(_READ_ONLY.format(kind))
    aval = marked(aval_of(array.shape, dtype), state.inference)
    if array.flags.c_contiguous and (1 not in array.shape or _lies_in_order(array)):
        memory = ExternalMemory(array)
        return wrap(external_value(memory, memory.whole, aval))
    memory = strided_memory(array)
    owner = wrap(external_value(memory, memory.whole, marked(aval_of(memory.whole.shape, dtype), state.inference)))
    layout = Layout(array.shape, tuple([width // array.itemsize for width in array.strides]), 0, dtype)
    alias = Alias(owner, (strided_step(layout.sizes, layout.strides, 0),), False)
    return attach(wrap(external_value(memory, memory.part(layout), aval)), alias)


def _lies_in_order(array: np.ndarray) -> bool:
    """Whether the strides of dims of size 1, which NumPy does not look at, are those that a new tensor has, too."""
    return array.strides == tuple([step * array.itemsize for step in row_major(array.shape)])


_READ_ONLY = (
    "The given {} is not writable. The tensor shows its elements until it is written to, and has a copy from then on. "
    "Copy it, or make it writable, before converting it to a tensor."
)


def from_numpy_array(array: np.ndarray) -> Tensor:
    """A tensor with the elements of a NumPy array that nobody writes to, without a copy if the memory permits it."""
    refuse_negative_strides(array)
    dtype = type_of(array)
    aligned = array.ctypes.data % ALIGNMENT == 0 and array.flags.c_contiguous and array.flags.writeable
    if not aligned or dtype is bool_ or array.dtype.kind == "V" or not array.size:
        return from_host(array, CPU)
    held = jnp.from_dlpack(array)
    return _leaf(aval_of(tuple(array.shape), dtype), held, owner=array)


def from_jax_array(array: jax.Array, owner: object = None) -> Tensor:
    """A tensor that holds a jax array."""
    target, kept = device_of(array), array if owner is None else owner
    return _leaf(aval_of(tuple(array.shape), from_numpy(array.dtype), device=target), array, owner=kept)


def _leaf(aval: Aval, array: object, owner: object = None) -> Tensor:
    return wrap(leaf(marked(aval, ambient().inference), array, owner=owner))


def scalar_tensor(
    value: object, *, dtype: DType | None = None, device: DeviceLike | None = None, requires_grad: bool = False
) -> Tensor:
    """A zero-dim tensor, by default of the default float type."""
    return tensor(value, dtype=dtype or default_dtype(), device=device, requires_grad=requires_grad)


def moved(source: Tensor, target: device_class) -> Tensor:
    """A copy on another device. Its gradient is copied back to the source's device."""
    value = operand(source)
    if value.aval.device == target:
        return source
    return wrap(moved_value(value, target))
