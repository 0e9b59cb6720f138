"""Conversions to another type or device, and writes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from math import prod

from weft._base import dtype as dtypes
from weft._base.device import CPU
from weft._base.device import device as device_class
from weft._base.dtype import DTYPES, DType, as_dtype
from weft._base.layout import preserve_format
from weft._base.state import ambient, default_dtype
from weft._base.types import Arg
from weft._lazy.native import native
from weft._tensor.alias import layout_of, owner_of, shows_changed
from weft._tensor.codegen import op
from weft._tensor.composite.create import sizes_of
from weft._tensor.composite.storage import contiguous
from weft._tensor.convert import moved, resolve_device, tensor
from weft._tensor.dim_names import label_of, names_of, take_names
from weft._tensor.functions import composite
from weft._tensor.sharing import require_resizable
from weft._tensor.storage import storage_of
from weft._tensor.strided import strided_view
from weft._tensor.tensor import Results, Tensor
from weft._tensor.view import write
from weft._tensor.write_checks import check_names, check_overlap, check_shape, check_writable
from weft.errors import DimNameError, DTypeError, GradientError, OutOfRangeError, ValueRangeError
from weft.ops._memory import require_addressable
from weft.ops._strides import row_major
from weft.ops._table import NO_FUNCTION
from weft.ops._type_names import scalar_name

# ---- another type, another device


def _to(
    input: Tensor,
    device: object = None,
    dtype: object = None,
    non_blocking: bool = False,
    copy: bool = False,
    *,
    memory_format: object = None,
) -> Tensor:
    del non_blocking  # every transfer is asynchronous
    result = input
    wanted = input.dtype if dtype is None else as_dtype(dtype, dtypes.float64)
    if wanted is not input.dtype:
        if wanted.is_quantized or input.dtype.is_quantized:
            raise DTypeError(
                "Creation of quantized tensor requires quantized dtype like torch.quint8, and the other way round: use "
                "torch.quantize_per_tensor(x, ...), x.dequantize() or x.int_repr()"
            )
        if input.is_complex() and not wanted.is_complex and wanted is not dtypes.bool_:
            warnings.warn("Casting complex values to real discards the imaginary part", stacklevel=3)
        result = op.to_dtype(input, wanted)
    if device is not None:
        result = moved(result, resolve_device(device))
    if copy and result is input:
        result = op.clone(result)
    return result if memory_format in (None, preserve_format) else contiguous(result, memory_format)


@composite(public=NO_FUNCTION)
def to(input: Tensor, *args: Arg, **options: Arg) -> Tensor:
    """The elements with another type, on another device, or both; the tensor itself if nothing changes.

    `to(dtype)`, `to(device, dtype)` or `to(tensor)`, then `non_blocking` and `copy`, which forces a new tensor.
    """
    if args and isinstance(args[0], Tensor):
        args = (args[0].device, args[0].dtype, *args[1:])
    elif args and isinstance(args[0], DType | type):
        args = (None, *args)
    return _to(input, *args, **options)


def _cast(name: str, dtype: DType) -> None:
    """Define the method `name`, which converts to the type `dtype`."""

    @composite(name, doc=f"The same elements as `{dtype.name}`.", public=NO_FUNCTION)
    def cast(input: Tensor, memory_format: object = None) -> Tensor:
        return _to(input, dtype=dtype, memory_format=memory_format)


for _name, _dtype in (
    ("bool", dtypes.bool_),
    ("byte", dtypes.uint8),
    ("char", dtypes.int8),
    ("short", dtypes.int16),
    ("int", dtypes.int32),
    ("long", dtypes.int64),
    ("half", dtypes.float16),
    ("bfloat16", dtypes.bfloat16),
    ("float", dtypes.float32),
    ("double", dtypes.float64),
    ("cfloat", dtypes.complex64),
    ("cdouble", dtypes.complex128),
):
    _cast(_name, _dtype)


@composite(public=NO_FUNCTION)
def type_as(input: Tensor, other: Tensor) -> Tensor:
    """The same elements with the type, and on the device, of `other`."""
    return _to(input, other.device, other.dtype)


TYPE_NAMES = {f"torch.{scalar_name(dtype)}Tensor": dtype for dtype in DTYPES}
"""Element types, by the names of the former tensor classes."""


@composite("type", public=NO_FUNCTION)
def type_(input: Tensor, dtype: object = None, non_blocking: bool = False) -> Results:
    """The elements as `dtype`; without it, the name of the type.

    A class such as `LongTensor` or `cuda.FloatTensor`, or its name, such as "torch.LongTensor", also says on which
    device.
    """
    if dtype is None:
        home = "" if input.device.type == "cpu" else f"{input.device.type}."
        home = f"quantized.{home}" if input.dtype.is_quantized else home
        return f"torch.{home}{scalar_name(input.dtype)}Tensor"
    if dtype is Tensor:
        dtype = default_dtype()
    if isinstance(dtype, type) and dtype.__module__.startswith("torch"):
        dtype = f"{dtype.__module__}.{dtype.__name__}"
    if not isinstance(dtype, str):
        return _to(input, dtype=dtype, non_blocking=non_blocking)
    module, _, name = dtype.rpartition(".")
    if f"torch.{name}" not in TYPE_NAMES or not (module == "torch" or module.startswith("torch.")):
        raise ValueRangeError(f"invalid type: {dtype!r}")
    kind = module.removeprefix("torch").removeprefix(".") or "cpu"
    target = None if kind == input.device.type else kind
    return _to(input, target, TYPE_NAMES[f"torch.{name}"], non_blocking)


@composite(public=NO_FUNCTION)
def cpu(input: Tensor, memory_format: object = None) -> Tensor:
    """The same elements in the host's memory."""
    return _to(input, CPU, memory_format=memory_format)


@composite(public=NO_FUNCTION)
def cuda(input: Tensor, device: object = None, non_blocking: bool = False, memory_format: object = None) -> Tensor:
    """The same elements on a GPU; `RuntimeError` if there is none."""
    target = device_class("cuda", device) if isinstance(device, int) else device or "cuda"
    return _to(input, target, non_blocking=non_blocking, memory_format=memory_format)


@composite(public=NO_FUNCTION)
def new_tensor(input: Tensor, data: Arg, *, dtype: DType | None = None, device: Arg = None, **options: Arg) -> Tensor:
    """A copy of `data` with the type and device of this tensor, unless others are given."""
    target = input.device if device is None else device
    return tensor(data, dtype=dtype or input.dtype, device=target, **options)


def _resolved(name: str, mark: str) -> None:
    """Define the function `name`, which copies views that are marked `mark`."""

    @composite(name, doc=f"The tensor itself, or a copy of a view that shows its elements {mark}.")
    def resolved(input: Tensor) -> Tensor:
        return op.clone(input) if shows_changed(input) and input.is_complex() == (mark == "conjugated") else input


_resolved("resolve_conj", "conjugated")
_resolved("resolve_neg", "negated")


@composite()
def pin_memory(input: Tensor) -> Tensor:
    """The tensor itself: XLA manages transfers by itself."""
    return input


# ---- writes


@composite("copy_", public=NO_FUNCTION, twin=native and native.copy_)
def copy_(input: Tensor, src: object, non_blocking: bool = False) -> Tensor:
    """Write `src`, cast and expanded to this tensor's type, size and device."""
    del non_blocking
    if src is input:
        check_writable(input, ambient().grad)
        return input
    source = src if isinstance(src, Tensor) else tensor(src)
    check_shape(source.shape, input.shape)
    check_overlap(input, [source])
    value = op.copy(input, moved(source, input.device))._read()
    return take_names(write(input, value), value.aval.names)


@composite("resize_", public=NO_FUNCTION)
def resize_(input: Tensor, *sizes: object, memory_format: object = None) -> Tensor:
    """Change the tensor's sizes, in place; the storage grows if need be. New elements are 0."""
    del memory_format
    wanted = sizes_of("resize_", sizes)
    _require_size_of_names(input, wanted)
    if input.requires_grad:
        raise GradientError("cannot resize variables that require grad")
    if wanted == input.shape:
        return input
    if prod(wanted) >= 2**63:
        raise OutOfRangeError("numel: integer multiplication overflow")
    require_addressable(wanted, input.itemsize)
    more = prod(wanted) - input.numel()
    if more > 0:
        require_resizable(owner_of(input))
    alone = input._alias is None and all(ref() is None for ref in input._views or ())
    offset = layout_of(input, exact=True).offset
    if not (alone and more >= 0):
        needed, storage = (offset + prod(wanted)) * input.itemsize, storage_of(input)
        if needed > storage.nbytes():
            storage.resize_(needed)
        input.data = strided_view(input.detach(), wanted, row_major(wanted), offset)
        return input
    flat = op.reshape(input, (-1,))
    added = op.zeros((more,), dtype=input.dtype, device=input.device)
    input.data = op.reshape(op.cat([flat, added]) if more else flat, wanted)
    return input


@composite("resize_as_")
def resize_as_(input: Tensor, the_template: Tensor, memory_format: object = None) -> Tensor:
    """Change the tensor's sizes to those of another one, in place."""
    check_names(input._read().aval.names, names_of(the_template))
    resized = resize_(input, the_template.shape, memory_format=memory_format)
    return take_names(resized, the_template._read().aval.names)


def _require_size_of_names(input: Tensor, sizes: Sequence[int]) -> None:
    if input._read().aval.names is not None and tuple(sizes) != input.shape:
        raise DimNameError(
            f"Cannot resize named tensor with resize_ or resize_as_ (tried to resize {label_of(input)} with size "
            f"{list(input.shape)} to {list(sizes)}). This may be caused by passing a named tensor as an `out=` "
            "argument; please ensure that the sizes are the same."
        )
