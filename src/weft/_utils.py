"""What libraries call in PyTorch's module of helpers: flat buffers, numbers of devices, tensors from their parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from weft._absent.refused import _rebuild_qtensor as _rebuild_qtensor
from weft._base.device import DeviceLike
from weft._base.device import device as Device
from weft._base.dtype import DType
from weft._base.exception_wrapper import ExceptionWrapper as ExceptionWrapper
from weft._base.layout import layout as layout_class
from weft._base.layout import sparse_coo
from weft._base.types import Arg
from weft._switches import get_device_module
from weft._tensor.codegen import op
from weft._tensor.composite.copies import empty_strided
from weft._tensor.composite.sparse import sparse_compressed_tensor, sparse_coo_tensor
from weft._tensor.convert import tensor
from weft._tensor.legacy_types import make_wrapper_subclass
from weft._tensor.storage import _Storage
from weft._tensor.tensor import Tensor
from weft.accelerator import current_accelerator, current_device_index, device_count
from weft.errors import ValueRangeError
from weft.nn import Parameter

# --- flat buffers -----------------------------------------------------------------------------------------------------


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """The elements of tensors of one type, one after another."""
    return op.cat([x.contiguous().view(-1) for x in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The parts of a flat tensor, as views in the shapes of `tensors`."""
    parts = flat.split([x.numel() for x in tensors])
    return tuple([part.view_as(x) for part, x in zip(parts, tensors, strict=True)])


def _take_tensors(tensors: Sequence[Tensor], size_limit: int) -> list[list[Tensor]]:
    """The tensors in lists of one type each, of about `size_limit` bytes."""
    full: list[list[Tensor]] = []
    filling: dict[DType, list[Tensor]] = {}
    for x in tensors:
        group = filling.setdefault(x.dtype, [])
        if group and sum(map(_nbytes, group)) + _nbytes(x) > size_limit:
            full.append(filling[x.dtype])
            group = filling[x.dtype] = []
        group.append(x)
    return full + [group for group in filling.values() if group]


def _nbytes(x: Tensor) -> int:
    return x.numel() * x.dtype.itemsize


def _reorder_tensors_as(tensors: Sequence[Tensor], ordered_tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The tensors in an order in which their types follow each other as in `ordered_tensors`."""
    of_type: dict[DType, list[Tensor]] = {}
    for x in tensors:
        of_type.setdefault(x.dtype, []).append(x)
    following = {dtype: iter(group) for dtype, group in of_type.items()}
    return tuple([next(following[x.dtype]) for x in ordered_tensors])


# --- tensors from their parts -----------------------------------------------------------------------------------------


def _rebuild_tensor(storage: _Storage, storage_offset: int, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """A tensor over a storage with a type of elements."""
    return _over(storage, storage_offset, size, stride, getattr(storage, "dtype", None))


def _over(storage: _Storage, offset: int, size: Sequence[int], stride: Sequence[int], dtype: DType | None) -> Tensor:
    return tensor([], dtype=dtype, device=storage.device).set_(storage.untyped(), offset, size, stride)


def _rebuild_tensor_v2(
    storage: _Storage,
    storage_offset: int,
    size: Sequence[int],
    stride: Sequence[int],
    requires_grad: bool,
    backward_hooks: Arg,
    metadata: Arg = None,
) -> Tensor:
    """A tensor over a storage, with a gradient or without."""
    del backward_hooks, metadata
    return _rebuild_tensor(storage, storage_offset, size, stride).requires_grad_(requires_grad)


def _rebuild_tensor_v3(
    storage: _Storage,
    storage_offset: int,
    size: Sequence[int],
    stride: Sequence[int],
    requires_grad: bool,
    backward_hooks: Arg,
    dtype: DType,
    metadata: Arg = None,
) -> Tensor:
    """A tensor of a type over the bytes of a storage, with a gradient or without."""
    del backward_hooks, metadata
    return _over(storage, storage_offset, size, stride, dtype).requires_grad_(requires_grad)


def _rebuild_sparse_tensor(layout: layout_class, data: tuple[Any, ...]) -> Tensor:
    """A sparse tensor of its parts and size; `check_invariants` says whether they are checked."""
    if layout is sparse_coo:
        indices, values, size, *coalesced = data
        return sparse_coo_tensor(indices, values, size, is_coalesced=coalesced[0] if coalesced else None)
    compressed, plain, values, size = data
    return sparse_compressed_tensor(compressed, plain, values, size, layout=layout)


def _rebuild_meta_tensor_no_storage(
    dtype: DType, size: Sequence[int], stride: Sequence[int], requires_grad: bool
) -> Tensor:
    """A tensor on the meta device."""
    return empty_strided(size, stride, dtype=dtype, device="meta", requires_grad=requires_grad)


def _rebuild_wrapper_subclass(
    cls: type[Tensor],
    dtype: DType,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int,
    layout: layout_class,
    device: DeviceLike,
    requires_grad: bool,
) -> Tensor:
    """A tensor without elements, of a class that computes operators on it."""
    return make_wrapper_subclass(
        cls, size, stride, storage_offset, None, dtype, layout, device, requires_grad=requires_grad
    )


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Arg) -> Parameter:
    """A parameter over a tensor."""
    del backward_hooks
    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data: Tensor, requires_grad: bool, backward_hooks: Arg, state: Arg) -> Parameter:
    """A parameter over a tensor, with attributes."""
    parameter = _rebuild_parameter(data, requires_grad, backward_hooks)
    vars(parameter).update(state)
    return parameter


def _rebuild_from_type_v2(func: Callable[..., Tensor], new_type: type[Tensor], args: Arg, state: Arg) -> Tensor:
    """What a function makes, as an instance of a class of tensors, with attributes."""
    result = func(*args)
    if type(result) is not new_type:
        result = result.as_subclass(new_type)
    if (set_state := getattr(new_type, "__setstate__", None)) is not None:
        set_state(result, state)
    elif state:
        for part in state if isinstance(state, tuple) else (state,):  # a class with slots has two
            for name, value in (part or {}).items():
                setattr(result, name, value)
    return result


# --- types and devices ------------------------------------------------------------------------------------------------


def _element_size(dtype: DType) -> int:
    """The bytes of an element."""
    return dtype.itemsize


def _get_available_device_type() -> str | None:
    """The type of the accelerator; None without one."""
    accelerator = current_accelerator()
    return None if accelerator is None else accelerator.type


def _get_device_module(device_type: str) -> ModuleType:
    """The module of a type of devices."""
    return get_device_module(device_type)


def _get_current_device_index() -> int:
    """The number of the current accelerator."""
    return current_device_index()


def _get_all_device_indices() -> list[int]:
    """The numbers of all accelerators."""
    return list(range(device_count()))


def _get_device_index(device: DeviceLike | None, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a device: -1 for the CPU where that is allowed, that of the current one for one without a number.

    `ValueError` for the CPU otherwise, and for None unless it is `optional`.
    """
    if device is None or isinstance(device, int):
        if device is None and not optional:
            raise ValueRangeError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
        return _get_current_device_index() if device is None else device
    place = Device(device)
    if place.type == "cpu":
        if allow_cpu:
            return -1
        raise ValueRangeError(f"Expected a non cpu device, but got: {place}")
    if place.index is None and not optional:
        raise ValueRangeError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
    return _get_current_device_index() if place.index is None else place.index


# --- names, classes -------------------------------------------------------------------------------------------------


def _import_dotted_name(name: str) -> Any:
    """The object at a dotted path, whose module is imported already."""
    first, *rest = name.split(".")
    entry: Any = import_module(first)
    for part in rest:
        entry = getattr(entry, part)
    return entry


class classproperty:
    """A property of a class, which needs no instance."""

    def __init__(self, func: Callable[[Any], Any]) -> None:
        self._get = func.__func__ if isinstance(func, (classmethod, staticmethod)) else func

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self._get(owner or type(instance))


def _convert(ret: Any, cls: type[Tensor]) -> Any:
    """A result, also one in tuples and lists, as tensors of a class."""
    if cls is Tensor:
        return ret
    if isinstance(ret, Tensor) and not isinstance(ret, cls):
        return ret.as_subclass(cls)
    if isinstance(ret, (tuple, list)):
        items = [_convert(item, cls) for item in ret]
        return type(ret)(*items) if hasattr(ret, "_fields") else type(ret)(items)
    return ret
