"""Operators that PyTorch has under private names, for libraries that call them."""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.dtype import DType, bool_, float16, float32, float64, int8, int16, int32, int64, uint8
from weft._base.types import Arg
from weft._tensor.arguments import Dim
from weft._tensor.codegen import op
from weft._tensor.composite.create import arange, full, zeros_like
from weft._tensor.convert import tensor
from weft._tensor.functions import composite
from weft._tensor.tensor import Tensor
from weft.errors import DTypeError, OptionError, ShapeError, UnsupportedCallError
from weft.ops._table import NO_METHOD


@composite(public=NO_METHOD)
def _shape_as_tensor(input: Tensor) -> Tensor:
    """The sizes of the dims, as int64 numbers."""
    return tensor(list(input.shape), dtype=int64)


@composite(public=NO_METHOD)
def _neg_view(input: Tensor) -> Tensor:
    """The elements negated. PyTorch's is a view, by which the elements can be written, too."""
    return op.neg(input)


def _casting(name: str, dtype: DType) -> None:
    @composite(f"_cast_{name}", doc=f"The elements as {dtype}.", public=NO_METHOD)
    def _cast(input: Tensor, non_blocking: bool = False) -> Tensor:
        del non_blocking
        return op.to_dtype(input, dtype)


for _name, _dtype in {
    "Byte": uint8,
    "Char": int8,
    "Short": int16,
    "Int": int32,
    "Long": int64,
    "Half": float16,
    "Float": float32,
    "Double": float64,
}.items():
    _casting(_name, _dtype)


@composite(public=NO_METHOD)
def _is_all_true(input: Tensor) -> Tensor:
    """Whether all elements of a bool tensor are true."""
    return _of_bools(input, "_is_all_true").all()


@composite(public=NO_METHOD)
def _is_any_true(input: Tensor) -> Tensor:
    """Whether an element of a bool tensor is true."""
    return _of_bools(input, "_is_any_true").any()


def _of_bools(input: Tensor, name: str) -> Tensor:
    if input.dtype is not bool_:
        raise DTypeError(f"{name}() takes a tensor of torch.bool, got {input.dtype}")
    return input


# --- softmax and its derivative ---------------------------------------------------------------------------------------


@composite(public=NO_METHOD)
def _softmax(input: Tensor, dim: Dim, half_to_float: bool) -> Tensor:
    """`softmax`, of 16-bit floats in float32 with `half_to_float`."""
    return op.softmax(op.to_dtype(input, float32) if half_to_float else input, dim)


@composite(public=NO_METHOD)
def _log_softmax(input: Tensor, dim: Dim, half_to_float: bool) -> Tensor:
    """`log_softmax`, of 16-bit floats in float32 with `half_to_float`."""
    return op.log_softmax(op.to_dtype(input, float32) if half_to_float else input, dim)


@composite(public=NO_METHOD)
def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: Dim, input_dtype: DType) -> Tensor:
    """The gradient of `softmax`'s input, from that of its output and the output itself."""
    product = grad_output * output
    return op.to_dtype(product - output * product.sum(dim, keepdim=True), input_dtype)


@composite(public=NO_METHOD)
def _log_softmax_backward_data(grad_output: Tensor, output: Tensor, dim: Dim, input_dtype: DType) -> Tensor:
    """The gradient of `log_softmax`'s input, from that of its output and the output itself."""
    return op.to_dtype(grad_output - output.exp() * grad_output.sum(dim, keepdim=True), input_dtype)


# --- sparse rows and segments -----------------------------------------------------------------------------------------


@composite(public=NO_METHOD)
def _convert_indices_from_coo_to_csr(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """Where each of `size` rows begins among sorted numbers of rows, and where the last one ends."""
    starts = arange(size + 1, dtype=input.dtype, device=input.device)
    return op.to_dtype(op.searchsorted(input.contiguous(), starts), int32 if out_int32 else int64)


@composite(public=NO_METHOD)
def _convert_indices_from_csr_to_coo(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """The row and the column of each element, from where the rows begin; columns first with `transpose`."""
    dtype = int32 if out_int32 else int64
    rows = op.to_dtype(_segment_of(crow_indices, col_indices.numel()), dtype)
    pair = [rows, op.to_dtype(col_indices, dtype)]
    return op.stack(pair[::-1] if transpose else pair, 0)


def _segment_of(offsets: Tensor, count: int) -> Tensor:
    """The segment in which each of `count` positions lies: -1 before the first one, their number behind the last."""
    positions = arange(count, dtype=offsets.dtype, device=offsets.device)
    return (op.searchsorted(offsets.contiguous(), positions, right=True) - 1).to(int64)


_STARTS = {"sum": 0.0, "mean": 0.0, "max": float("-inf"), "min": float("inf"), "prod": 1.0}


@composite(public=NO_METHOD)
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Arg = None,
    indices: Arg = None,
    offsets: Arg = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Arg = None,
) -> Tensor:
    """Segments of the first dim, each reduced to one entry: "sum", "mean", "max", "min" or "prod".

    `lengths` are the sizes of the segments, or `offsets` where they begin and the last one ends. An empty segment gives
    `initial`, or else what a reduction of nothing is.
    """
    del unsafe
    if indices is not None:
        raise UnsupportedCallError(
            "segment_reduce(): indices based reduction is not supported; give lengths or offsets"
        )
    if reduce not in _STARTS:
        raise OptionError(f"unsupported reduction given: {reduce}; expected one of {', '.join(_STARTS)}")
    if (lengths is None) == (offsets is None):
        raise OptionError("segment_reduce(): Either lengths or offsets must be defined, and not both")
    if axis != 0 or (lengths if offsets is None else offsets).ndim != 1:
        raise ShapeError("segment_reduce(): segments of the first dim are supported: axis=0 and 1D lengths or offsets")
    if offsets is None:
        ends = lengths.cumsum(0)
        offsets = op.cat([zeros_like(ends[:1]), ends])
    count = offsets.shape[0] - 1
    start = _STARTS[reduce] if initial is None else initial
    of = _segment_of(offsets, data.shape[0])
    of = op.where(of < 0, count, of)  # what lies in no segment goes to one more, which is dropped
    how = {"max": "amax", "min": "amin", "mean": "sum"}.get(reduce, reduce)
    index = of.reshape((-1,) + (1,) * (data.ndim - 1)).expand(data.shape)
    room = full((count + 1, *data.shape[1:]), start, dtype=data.dtype, device=data.device)
    result = op.scatter_reduce(room, 0, index, data, how)[:count]
    if reduce != "mean":
        return result
    sizes = (offsets[1:] - offsets[:-1]).reshape((-1,) + (1,) * (data.ndim - 1)).to(data.dtype)
    return result / sizes if initial is None else op.where(sizes > 0, result / sizes, result)


@composite("_segment_reduce", public=NO_METHOD)
def _segment_reduce(data: Tensor, reduce: str, **options: Arg) -> Tensor:
    """The former name of `segment_reduce`."""
    return segment_reduce(data, reduce, **options)


@composite(public=NO_METHOD)
def _stack(tensors: Sequence[Tensor], dim: Dim = 0) -> Tensor:
    """`stack`."""
    return op.stack(list(tensors), dim)
