"""Functions about the memory of tensors, and Python functions applied to elements."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from math import prod

import numpy as np

from weft._base.device import CPU, META, canonical
from weft._base.device import device as device_class
from weft._base.dtype import BOOL, FLOAT, INTEGER, DType
from weft._base.layout import contiguous_format, memory_format, preserve_format
from weft._base.size import Size
from weft._base.state import ambient, using
from weft._base.types import AnyCallable, Arg, Args, Result
from weft._lazy.refusal import require_dim
from weft._tensor.addresses import memory_of
from weft._tensor.alias import layout_of, owner_of
from weft._tensor.arguments import Dim, refuse_of_other_library, sizes
from weft._tensor.codegen import op
from weft._tensor.composite.create import order_by_name, order_of, sizes_of
from weft._tensor.convert import from_host, from_numpy_array, tensor
from weft._tensor.functions import composite
from weft._tensor.scalar import fitting
from weft._tensor.shared import move_to_segment, shared_by
from weft._tensor.sharing import of_class, set_data
from weft._tensor.storage import TypedStorage, UntypedStorage, elements_of, storage_class, storage_of
from weft._tensor.strided import strided_view
from weft._tensor.tensor import Tensor, wrap
from weft._tensor.view import external_memory_of, write
from weft._tensor.write_checks import check_writable
from weft.errors import ArgumentError, DeviceError, DTypeError, GradientError, OutOfRangeError, ShapeError
from weft.ops._kinds import Scalar
from weft.ops._strides import Layout, row_major
from weft.ops._table import NO_FUNCTION, NO_METHOD
from weft.ops._type_names import c_name, scalar_name

# ---- memory


@composite(public=NO_FUNCTION)
def as_subclass(input: Tensor, cls: object) -> Tensor:
    """A view of all elements, as a tensor of a subclass of `Tensor`."""
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise ArgumentError(
            "Creating a Tensor subclass from a class that does not inherit from Tensor is not possible. Make sure your "
            "class inherits from Tensor."
        )
    return of_class(cls, op.alias(input))


@composite(public=NO_FUNCTION)
def untyped_storage(input: Tensor) -> UntypedStorage:
    """The storage that the tensor owns, or shares as a view."""
    return storage_of(input)


@composite(public=NO_FUNCTION)
def storage(input: Tensor) -> TypedStorage:
    """The storage as elements of the tensor's type. Deprecated: use `untyped_storage`."""
    return TypedStorage(wrap_storage=storage_of(input), dtype=input.dtype)


@composite(public=NO_FUNCTION)
def storage_type(input: Tensor) -> type:
    """The class of storages of this type, such as `FloatStorage`."""
    return storage_class(input.dtype)


@composite(public=NO_FUNCTION)
def storage_offset(input: Tensor) -> int:
    """The place of the first element in the storage. Waits for it if it depends on an index tensor."""
    return layout_of(input, exact=True).offset


@composite(public=NO_FUNCTION)
def stride(input: Tensor, dim: Dim | None = None) -> tuple[int, ...] | int:
    """The distance of neighbouring elements in the storage, for each dim or for one."""
    strides = layout_of(input).strides
    return strides if dim is None else strides[require_dim(dim, input.ndim)]


@composite(public=NO_FUNCTION)
def is_contiguous(input: Tensor, memory_format: memory_format = contiguous_format) -> bool:
    """Whether the elements are dense in the order of a memory format, by default row-major."""
    order = order_by_name(memory_format)
    if order is None:
        return input._alias is None or layout_of(input).is_contiguous
    return input.ndim == len(order) and layout_of(input).is_ordered(order)


@composite(public=NO_FUNCTION)
def contiguous(input: Tensor, memory_format: memory_format = contiguous_format) -> Tensor:
    """The tensor itself if its elements are dense in the order of the format, else a copy that is."""
    if is_contiguous(input, memory_format):
        return input
    order = order_of(memory_format, input.ndim)
    if order is None:
        return op.clone(input)
    return op.permute(op.clone(op.permute(input, order)), [order.index(d) for d in range(len(order))])


@composite()
def clone(input: Tensor, *, memory_format: memory_format = preserve_format) -> Tensor:
    """A copy of the tensor that shares nothing with it, in row-major order or in that of a format."""
    copy = op.clone(input)
    return copy if memory_format in (None, preserve_format) else contiguous(copy, memory_format)


@composite(public=NO_FUNCTION)
def data_ptr(input: Tensor) -> int:
    """The address of the first element: equal for aliases, and unchanged by writes.

    Where the elements are also those of an array, a file or another process, the address is that of the memory that is
    shared. For other tensors of the CPU, elements can be read there until the tensor is written, and after a write once
    this was called again. They are a copy: what is written there, no tensor shows. Nothing can be read while a function
    is captured, or for other devices. 0 without elements, and on the meta device.
    """
    owner = owner_of(input)
    if not input.numel() or not owner.nbytes or input.device is META:
        return 0
    external = external_memory_of(owner)
    if external is not None:
        return external.address + storage_offset(input) * input.element_size()
    memory, value = memory_of(owner), owner._read()
    if input.device.type == "cpu" and ambient().capture is None and not memory.shows(value):
        distributed = value.aval.distributed
        part = owner if distributed is None else wrap(distributed.part(value))
        memory.show(value, part._host())
    return memory.start + storage_offset(input) * input.element_size()


@composite(public=NO_FUNCTION)
def is_set_to(input: Tensor, tensor: Tensor) -> bool:
    """Whether both tensors are the same elements of the same storage."""
    return owner_of(input) is owner_of(tensor) and layout_of(input, exact=True) == layout_of(tensor, exact=True)


@composite("set_", public=NO_FUNCTION)
def set_(input: Tensor, source: Arg = None, storage_offset: int = 0, size: Arg = None, stride: Arg = None) -> Tensor:
    """Make the tensor a view of another tensor's elements, or of places in a storage; without arguments, of nothing.

    Places in a storage that is too small make it larger.
    """
    check_writable(input, ambient().grad)
    refuse_of_other_library(source, "source", "set_")
    if isinstance(source, UntypedStorage | TypedStorage):
        data = _on_storage(input, source, storage_offset, size, stride)
    else:
        data = op.zeros((0,), dtype=input.dtype, device=input.device) if source is None else source
        if data.dtype is not input.dtype:
            raise DTypeError(f"Could not set tensor of type {c_name(data)} to a tensor of type {c_name(input)}")
        data = data.detach()
        if size is not None:
            data = strided_view(data, *_places(size, stride), storage_offset)
    set_data(input, data)
    return input


def _on_storage(
    input: Tensor, source: UntypedStorage | TypedStorage, offset: int, size: object, stride: object
) -> Tensor:
    """Places in a storage as elements of the type of `input`; by default all."""
    if isinstance(source, TypedStorage) and source.dtype is not input.dtype:
        raise DTypeError(
            f"Expected a Storage of type {input.dtype} or an UntypedStorage, but got type {source.dtype} for argument "
            "'source'"
        )
    if source.device != input.device:
        raise DeviceError(
            f"Attempted to set the storage of a tensor on device {input.device} to a storage on different device "
            f"{source.device}. This is no longer allowed; the devices must match."
        )
    storage = source.untyped()
    if size is None:
        return elements_of(storage, input.dtype)
    shape, strides = _places(size, stride)
    needed = (offset + Layout(shape, strides, offset, input.dtype).extent) * input.itemsize
    if prod(shape) and needed > storage.nbytes():
        storage.resize_(needed)
    with using(grad=False):
        owner = storage.owner
        return strided_view(owner, shape, strides, offset, dtype=input.dtype)


def _places(size: object, stride: object) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and strides, by default row-major."""
    shape = sizes(size, "size", "set_")
    return shape, row_major(shape) if stride is None else sizes(stride, "stride", "set_")


@composite(public=NO_METHOD)
def is_storage(obj: object) -> bool:
    """Whether `obj` is a storage."""
    return isinstance(obj, UntypedStorage | TypedStorage)


@composite(public=NO_FUNCTION)
def dim_order(input: Tensor) -> tuple[int, ...]:
    """The dims from the outermost in memory to the innermost."""
    return layout_of(input).order


@composite(public=NO_FUNCTION)
def is_pinned(input: Tensor, device: object = None) -> bool:
    """False: XLA manages transfers by itself."""
    return False


@composite(public=NO_FUNCTION)
def is_shared(input: Tensor) -> bool:
    """Whether other processes may see the elements: they are in shared memory, or in a file that is mapped."""
    return shared_by(input) is not None


@composite("share_memory_", public=NO_FUNCTION)
def share_memory_(input: Tensor) -> Tensor:
    """Move the storage of a tensor on the CPU to memory that processes share; returns the tensor.

    A process that is forked, or that gets the tensor through `multiprocessing`, sees what is written to it here, and
    the reverse. Operators have the elements that are there when they are called, so each use of the tensor costs a copy
    of its elements. Nothing synchronises processes that write at the same time.
    """
    if input.device is CPU:
        move_to_segment(input)
    return input


@composite(public=NO_FUNCTION)
def record_stream(input: Tensor, stream: object) -> None:
    """Does nothing: XLA knows how long memory is in use."""


@composite(public=NO_FUNCTION)
def to_dense(input: Tensor, dtype: DType | None = None, *, masked_grad: bool = True) -> Tensor:
    """The tensor itself, as `dtype`: it is dense."""
    del masked_grad
    return input if dtype is None else op.to_dtype(input, dtype)


LEGACY = (
    "tensor constructor of the form torch.Tensor(tensor, device=device) is not supported.  "
    "Use torch.tensor(...) or torch.as_tensor(...)"
)
_LEGACY_NEW = "tensor new of the form tensor.new(tensor, device=device) is not supported.  Use torch.as_tensor(...)"


def tensor_of(dtype: DType, home: device_class, args: Args, device: Arg = None, legacy: str = LEGACY) -> Tensor:
    """A tensor of this type: of the given sizes, with the elements of one sequence or array, or empty.

    It is on `device`, which must be of the same kind as `home`, or else on `home`.
    """
    if len(args) == 1 and isinstance(args[0], Tensor):
        if device is not None:
            raise OutOfRangeError(f"Legacy {legacy} instead.")
        if args[0].dtype is not dtype:
            raise ArgumentError(f"new(): expected a tensor of {dtype}, got one of {args[0].dtype}")
        return args[0].detach()
    target = home if device is None else canonical(device)
    if target.type != home.type:
        raise DeviceError(
            f"legacy constructor expects device type: {home.type} but device type: {target.type} was passed"
        )
    if len(args) == 1 and not isinstance(args[0], Size | int):
        return tensor(args[0], dtype=dtype, device=target)
    return op.zeros(sizes_of("new", args or (0,)), dtype=dtype, device=target)


@composite(public=NO_FUNCTION)
def new(input: Tensor, *args: object, device: object = None) -> Tensor:
    """A tensor of the same type: of the given sizes, with the elements of one sequence or array, or empty."""
    return tensor_of(input.dtype, input.device, args, device, _LEGACY_NEW)


# ---- Python functions on elements


def _by_python(name: str, input: Tensor, function: AnyCallable, *others: Tensor) -> Tensor:
    """Write the results of `function` for each element and its partners in `others`, computed on the host."""
    if any(x.requires_grad for x in (input, *others)):
        raise GradientError(f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead.")
    if input.device.type != "cpu":
        raise ArgumentError(f"{name} is only implemented on CPU tensors")
    if not callable(function):
        raise ArgumentError(f"'{type(function).__name__}' object is not callable")
    for x in others:
        if x.dtype is not input.dtype:
            expected, actual = (f"torch.{scalar_name(dtype)}Tensor" for dtype in (input.dtype, x.dtype))
            raise ArgumentError(f"{name}: expected {expected} for 'other' (got {actual})")
    columns = [op.expand(x, input.shape).reshape(-1).tolist() for x in (input, *others)]
    elements = np.array(
        [_element(function(*row), input.dtype) for row in zip(*columns, strict=True)], input.dtype.numpy
    )
    return write(input, from_host(elements.reshape(input.shape), input.device)._read())


_REALS: tuple[type, ...] = (numbers.Real, np.bool_, Tensor)


def _element(x: Arg, dtype: DType) -> Scalar:
    """A Python function's result as an element of a type; `TypeError` if it is no such number."""
    if dtype.category == INTEGER and not isinstance(x, _REALS):
        raise ArgumentError(f"'{type(x).__name__}' object cannot be interpreted as an integer")
    if dtype.category == FLOAT and not isinstance(x, _REALS):
        raise ArgumentError(f"must be real number, not {type(x).__name__}")
    x = x.item() if isinstance(x, Tensor) else x
    return x if dtype.category == BOOL else fitting(x, dtype)


@composite("apply_", public=NO_FUNCTION)
def apply_(input: Tensor, callable: Callable[[Arg], Result]) -> Tensor:
    """Replace each element by a Python function's result. It runs on the CPU and is slow."""
    return _by_python("apply_", input, callable)


@composite("map_", public=NO_FUNCTION)
def map_(input: Tensor, tensor: Tensor, callable: Callable[[Arg, Arg], Result]) -> Tensor:
    """Replace each element by `callable(element, partner)`, with partners from `tensor`. On the CPU, and slow."""
    return _by_python("map_", input, callable, tensor)


@composite("map2_", public=NO_FUNCTION)
def map2_(input: Tensor, x: Tensor, y: Tensor, callable: Callable[[Arg, Arg, Arg], Result]) -> Tensor:
    """Replace each element by `callable(element, first, second)`, with partners from two tensors."""
    return _by_python("map2_", input, callable, x, y)


# ---- writes and sums


@composite("fill_diagonal_", public=NO_FUNCTION)
def fill_diagonal_(input: Tensor, fill_value: object, wrap: bool = False) -> Tensor:
    """Write a number where all indices are equal; with `wrap`, a tall matrix's diagonal starts again below its end."""
    if isinstance(fill_value, Tensor) and (fill_value.ndim or fill_value.requires_grad):
        raise ArgumentError("fill_diagonal_(): argument 'fill_value' (position 1) must be Number, not Tensor")
    if input.ndim < 2:
        raise ShapeError("dimensions must larger than 1")
    if input.ndim > 2 and len(set(input.shape)) > 1:
        raise ShapeError("all dimensions of input must be of equal length")
    rows, columns = input.shape[0], input.shape[1]
    mask = np.zeros(input.numel(), np.bool_)
    end = columns * columns if input.ndim == 2 and rows > columns and not wrap else None
    mask[: end : sum(input.stride())] = True
    diagonal = from_numpy_array(mask.reshape(input.shape)).to(input.device)
    return write(input, op.masked_fill(input, diagonal, fill_value)._read())


@composite(public=NO_FUNCTION)
def sum_to_size(input: Tensor, *size: object) -> Tensor:
    """The tensor summed over the dims along which a tensor of this size would have been expanded."""
    wanted = sizes_of("sum_to_size", size)
    if not wanted:
        return op.sum(input)
    lead = input.ndim - len(wanted)
    if lead < 0 or any(n not in (1, m) for n, m in zip(wanted, input.shape[lead:], strict=True)):
        raise ShapeError(f"size {{{list(wanted)}}} is not expandable to size {{{list(input.shape)}}}.")
    kept = [n == m for n, m in zip(wanted, input.shape[max(lead, 0) :], strict=True)]
    over = (*range(lead), *(d for d, stays in enumerate(kept, lead) if not stays))
    return op.reshape(op.sum(input, over, True), wanted) if over else input


@composite("polygamma_", public=NO_FUNCTION)
def polygamma_(input: Tensor, n: int) -> Tensor:
    """Replace each element by the derivative of order `n` of the digamma function."""
    return write(input, op.polygamma(n, input)._read())
