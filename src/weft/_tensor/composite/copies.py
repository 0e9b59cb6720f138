"""Copies of views, copies with a view written, and arbitrary strides."""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.dtype import DType, int32, int64
from weft._base.guards import TUPLE
from weft._base.state import default_dtype
from weft._base.types import AnyCallable
from weft._tensor.alias import layout_of
from weft._tensor.arguments import Dim, sizes, without_names
from weft._tensor.codegen import op
from weft._tensor.composite import names, shape
from weft._tensor.composite.create import new_empty
from weft._tensor.functions import FUNCTIONS, composite
from weft._tensor.sharing import rebind
from weft._tensor.strided import strided_view
from weft._tensor.tensor import Results, Tensor
from weft._tensor.view import write
from weft.errors import DistError, DTypeError, OutOfRangeError, ShapeError
from weft.ops._dims import wrap_dim
from weft.ops._memory import require_addressable_places
from weft.ops._strides import Layout
from weft.ops._table import NO_FUNCTION, NO_METHOD, PLAIN, Public
from weft.ops._type_names import scalar_name

View = AnyCallable


def _sliced(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    at = wrap_dim(without_names(dim, input), input.ndim)
    return input[(slice(None),) * at + (slice(start, end, step),)]


def _itself(input: Tensor) -> Tensor:
    return input


@composite()
def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """A view of the storage with these strides and this offset, by default that of the tensor."""
    layout = layout_of(input, exact=True)
    offset = layout.offset if storage_offset is None else storage_offset
    size, stride = sizes(size, "size", "as_strided"), sizes(stride, "stride", "as_strided")
    if input._read().aval.mesh is None:
        return strided_view(input, size, stride, offset)
    if (size, stride, offset) != (layout.sizes, layout.strides, layout.offset):
        raise DistError(
            f"as_strided not supported with DTensor: its elements lie in the memory of several processes. It has the "
            f"size {list(layout.sizes)}, the strides {list(layout.strides)} and the offset {layout.offset}, but "
            f"{list(size)}, {list(stride)} and {offset} were asked for; take x.to_local() or x.full_tensor()"
        )
    return op.view(input, size)


@composite()
def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: DType | None = None,
    device: object = None,
    requires_grad: bool = False,
) -> Tensor:
    """Zeros with these sizes and strides."""
    if len(size) != len(stride):
        raise _unequal_lengths(size, stride)
    settled = dtype or default_dtype()
    places = Layout(tuple(size), tuple(stride), 0, settled)
    require_addressable_places(places)
    storage = op.zeros((max(places.extent, 0),), dtype=settled, device=device)
    view = strided_view(storage, places.sizes, places.strides, 0)
    return view._require_grad(True) if requires_grad else view


def _unequal_lengths(size: Sequence[int], stride: Sequence[int]) -> ShapeError:
    return ShapeError(f"dimensionality of sizes ({len(size)}) must match dimensionality of strides ({len(stride)})")


@composite(public=NO_FUNCTION)
def new_empty_strided(
    input: Tensor, size: Sequence[int], stride: Sequence[int], *, dtype: DType | None = None, **options: object
) -> Tensor:
    """`empty_strided` with this tensor's type and device.

    It is distributed as this tensor is, if that is, and then has no room between its elements.
    """
    if input._read().aval.owner is None:
        device = options.pop("device", input.device)
        return empty_strided(size, stride, dtype=dtype or input.dtype, device=device, **options)
    if len(size) != len(stride):
        raise _unequal_lengths(size, stride)
    # Parts lie in memory in the order of the whole tensor's strides: a tensor of that order, seen in the order of dims.
    order = sorted(range(len(size)), key=lambda dim: stride[dim], reverse=True)
    like = op.permute(input, order) if tuple(size) == tuple(input.shape) else input
    requires_grad = options.pop("requires_grad", False)
    ordered = new_empty(like, [size[dim] for dim in order], dtype=dtype, **options)
    view = op.permute(ordered, [order.index(dim) for dim in range(len(order))])
    return view._require_grad(True) if requires_grad else view


@composite()
def empty_permuted(
    size: Sequence[int], physical_layout: Sequence[int], *, dtype: DType | None = None, **options: object
) -> Tensor:
    """Zeros with these sizes, of which the dims in `physical_layout` are those in memory from the outermost on."""
    ndim = len(size)
    if len(physical_layout) != ndim:
        raise ShapeError(
            "Number of dimensions in size does not match the length of the physical_layout; i.e. "
            f"len(size) = {ndim} is not equal to len(physical_layout) = {len(physical_layout)}"
        )
    for at, dim in enumerate(physical_layout):
        if not 0 <= dim < ndim:
            raise ShapeError(
                f"Dimension out of range (expected to be between 0 and {ndim - 1}, but got {dim} at index {at}).  NB: "
                "negative dims not currently supported; file an issue if you want it."
            )
    if len(set(physical_layout)) != ndim:
        raise ShapeError("Duplicate dim not allowed")
    strides, step = [0] * ndim, 1
    for dim in reversed(physical_layout):
        strides[dim], step = step, step * max(size[dim], 1)
    return empty_strided(size, strides, dtype=dtype, **options)


@composite("as_strided_")
def as_strided_(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """`as_strided` in place: the tensor shows other elements of its storage."""
    return rebind(input, as_strided(input, size, stride, storage_offset))


# ---- copies


_COPIED: dict[str, View] = {
    name: FUNCTIONS["", name].function  # which accepts names of dims
    for name in (
        "expand",
        "narrow",
        "permute",
        "select",
        "split",
        "split_with_sizes",
        "squeeze",
        "t",
        "transpose",
        "unbind",
        "unsqueeze",
        "view",
        "view_as_complex",
        "view_as_real",
    )
} | {
    "alias": _itself,
    "as_strided": as_strided,
    "diagonal": names.diagonal,
    "detach": Tensor.detach,
    "slice": _sliced,
    "unfold": op.window,
}


def _copying(name: str, view: View) -> None:
    """Define `<name>_copy`, which copies what a view shows."""

    @composite(f"{name}_copy", doc=f"What `{name}` gives, as a copy.", public=PLAIN if name == "narrow" else NO_METHOD)
    def copied(input: Tensor, *args: object, **kwargs: object) -> Results:
        result = view(input, *args, **kwargs)
        return tuple([op.clone(x) for x in result]) if isinstance(result, TUPLE) else op.clone(result)


for _name, _view in _COPIED.items():
    _copying(_name, _view)


# ---- writes


def _writing(name: str, view: View) -> None:
    """Define `<name>_scatter`, which gives a copy in which the part shown by a view is replaced."""

    @composite(
        f"{name}_scatter", doc=f"A copy of `input` with `src` in the part that `{name}` shows; its arguments follow."
    )
    def written(input: Tensor, src: Tensor, *args: object, **kwargs: object) -> Tensor:
        result = op.clone(input)
        part = view(result, *args, **kwargs)
        if src.shape != part.shape:
            raise ShapeError(
                "expected src to have a size equal to the slice of self. "
                f"src size = {list(src.shape)}, slice size = {list(part.shape)}"
            )
        write(part, op.to_dtype(src, input.dtype)._read())
        return result


for _name, _view in (
    ("select", FUNCTIONS["", "select"].function),
    ("slice", _sliced),
    ("diagonal", names.diagonal),
    ("as_strided", as_strided),
):
    _writing(_name, _view)


@composite(public=Public(inplace=True, separate=("index", "source")))
def index_reduce(
    input: Tensor, dim: Dim, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """`input` with slices of `source` combined at the places of `index` along `dim`: "prod", "mean", "amax", "amin"."""
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise OutOfRangeError(
            f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}."
        )
    if index.dtype not in (int32, int64):
        raise DTypeError(f"index_reduce_(): Expected dtype int32/int64 for index but got: {scalar_name(index.dtype)}")
    if source.dtype is not input.dtype:
        raise DTypeError("index_reduce_(): self and source expected to have the same scalar type")
    at = wrap_dim(dim, input.ndim)
    count = source.shape[at] if source.ndim else 1
    if index.numel() != count:
        raise ShapeError(
            f"index_reduce_(): Number of indices ({index.numel()}) should be equal to source.size(dim): ({count}), "
            f"for dim: {dim}"
        )
    sizes = [count if d == at else 1 for d in range(source.ndim)]
    places = op.expand(op.reshape(index, sizes), source.shape)
    return op.scatter_reduce(input, at, places.long(), source, reduce, include_self=include_self)


for _name in ("split", "split_with_sizes", "chunk"):
    composite(f"unsafe_{_name}")(getattr(shape, _name))
