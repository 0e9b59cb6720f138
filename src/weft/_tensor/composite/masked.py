"""Functions of the elements where a mask is true: all others have no influence on the result."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

from weft._base.dtype import BOOL, COMPLEX, FLOAT, DType, bool_, float32, int64
from weft._base.limits import limits
from weft._base.numpy_guards import INTEGERS
from weft._base.types import Arg, Result
from weft._tensor.arguments import AnyDims, Dim
from weft._tensor.codegen import op
from weft._tensor.functions import composite
from weft._tensor.tensor import Tensor
from weft.errors import DimError, NotDefinedError, ShapeError, ValueRangeError
from weft.ops._dims import wrap_dim
from weft.ops._kinds import Scalar
from weft.ops._table import Public


def masked(name: str) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Make a function public in the module `masked`."""
    return composite(name, public=Public(module="masked"))


# --- masks ------------------------------------------------------------------------------------------------------


def parts(input: Arg, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The elements, and the mask as booleans of the same shape; those of a `MaskedTensor`, which has its own mask."""
    if not isinstance(input, Tensor) and hasattr(input, "get_mask"):
        return input.get_data(), input.get_mask()
    if mask is None:
        return input, None
    if mask.ndim > input.ndim:
        raise DimError("_input_mask expected broadcastable mask (got mask dimensionality higher than of the input)")
    return input, op.broadcast_to(op.to_dtype(mask, bool_), input.shape)


def _least(input: Tensor, name: str) -> Scalar:
    """The number that is no larger than any other of the type."""
    return _extreme(input, name, -inf, 0)


def _most(input: Tensor, name: str) -> Scalar:
    return _extreme(input, name, inf, 1)


def _extreme(input: Tensor, name: str, infinite: float, at: int) -> Scalar:
    if input.dtype.category == FLOAT:
        return infinite
    if input.dtype.category in (BOOL, COMPLEX):
        raise NotDefinedError(f"identity of {name} on {input.dtype} input")
    return limits(input.dtype)[at]


def _filled(input: Tensor, mask: Tensor | None, number: object) -> Tensor:
    return input if mask is None else op.masked_fill(input, op.logical_not(mask), number)


def dims_of(dim: Arg, ndim: int) -> tuple[int, ...]:
    """Dims in order, counted from the first; all for None and ()."""
    if dim is None or dim == ():
        return tuple(range(ndim))
    result: list[int] = []
    for d in (dim,) if isinstance(dim, INTEGERS) else dim:
        if d in result:
            raise ShapeError(f"dim={d} appears multiple times in the list of dims")
        result.append(wrap_dim(d, ndim))
    return tuple(sorted(result))


def _widened(dtype: DType) -> DType:
    """The type of sums and products: int64 for smaller integers and booleans."""
    return dtype if dtype.is_differentiable or (dtype.name.startswith("uint") and dtype.itemsize > 1) else int64


# --- reductions -------------------------------------------------------------------------------------------------


@masked("sum")
def sum(
    input: object,
    dim: AnyDims = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The sum over `dim` of the elements where `mask` is true, by default of all; 0 where there are none."""
    x, mask = parts(input, mask)
    return op.sum(_filled(x, mask, 0), dims_of(dim, x.ndim), bool(keepdim), dtype=dtype or _widened(x.dtype))


@masked("prod")
def prod(
    input: object,
    dim: AnyDims = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The product over `dim` of the elements where `mask` is true; 1 where there are none."""
    x, mask = parts(input, mask)
    result = op.to_dtype(_filled(x, mask, 1), dtype or _widened(x.dtype))
    for d in reversed(dims_of(dim, x.ndim)):
        result = op.prod(result, d, bool(keepdim))
    return result


@masked("amax")
def amax(
    input: object,
    dim: AnyDims = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The largest element over `dim` where `mask` is true; the least number of the type where there is none."""
    x, mask = parts(input, mask)
    filled = x if mask is None else _filled(x, mask, _least(x, "amax"))
    return op.to_dtype(op.amax(filled, dims_of(dim, x.ndim), bool(keepdim)), dtype or x.dtype)


@masked("amin")
def amin(
    input: object,
    dim: AnyDims = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The smallest element over `dim` where `mask` is true; the largest number of the type where there is none."""
    x, mask = parts(input, mask)
    filled = x if mask is None else _filled(x, mask, _most(x, "amin"))
    return op.to_dtype(op.amin(filled, dims_of(dim, x.ndim), bool(keepdim)), dtype or x.dtype)


@masked("argmax")
def argmax(
    input: object,
    dim: Dim | None = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The index along `dim` of the largest element where `mask` is true, in the type of the elements."""
    x, mask = parts(input, mask)
    filled = x if mask is None else _filled(x, mask, _least(x, "argmax"))
    return op.to_dtype(op.argmax(filled, dim, bool(keepdim)), dtype or x.dtype)


@masked("argmin")
def argmin(
    input: object,
    dim: Dim | None = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The index along `dim` of the smallest element where `mask` is true, in the type of the elements."""
    x, mask = parts(input, mask)
    filled = x if mask is None else _filled(x, mask, _most(x, "argmin"))
    return op.to_dtype(op.argmin(filled, dim, bool(keepdim)), dtype or x.dtype)


def _count(x: Tensor, mask: Tensor | None, dim: object, keepdim: bool) -> Tensor:
    """The number of elements that take part."""
    present = op.ones(x.shape, dtype=bool_, device=x.device) if mask is None else mask
    return op.sum(present, dims_of(dim, x.ndim), keepdim)


@masked("mean")
def mean(
    input: object,
    dim: AnyDims = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The mean over `dim` of the elements where `mask` is true; NaN where there are none."""
    x, mask = parts(input, mask)
    settled = dtype or x.dtype
    if not settled.is_differentiable:
        raise ValueRangeError(
            f"mean(): Could not infer output dtype. {'Input' if dtype is None else 'Optional'} dtype must be either a "
            f"floating point or complex dtype. Got: {settled}"
        )
    return sum(x, dim, keepdim=keepdim, dtype=settled, mask=mask) / _count(x, mask, dim, bool(keepdim))


@masked("median")
def median(
    input: object, dim: Dim = -1, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The median along `dim` of the elements where `mask` is true; NaN where there are none.

    `ValueError` for integers where there are none: they have no NaN.
    """
    x, mask = parts(input, mask)
    (at,) = dims_of(dim, x.ndim)
    wide = x if x.is_floating_point() else op.to_dtype(x, float32)
    result = op.nanmedian_dim(_filled(wide, mask, nan), at, keepdim)[0]
    if wide is x:
        return result
    if bool(result.isnan().any()):
        raise ValueRangeError("masked median expects no fully masked out rows if dtype is not floating point")
    return op.to_dtype(result, dtype or x.dtype)


@masked("logsumexp")
def logsumexp(
    input: object, dim: AnyDims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The logarithm of the sum over `dim` of exponentials where `mask` is true."""
    x, mask = parts(input, mask)
    least = -inf if x.is_complex() else None if mask is None else _least(x, "logsumexp")
    return op.to_dtype(op.logsumexp(_filled(x, mask, least), dims_of(dim, x.ndim), keepdim), dtype or x.dtype)


@masked("norm")
def norm(
    input: object,
    ord: float | None = 2.0,
    dim: AnyDims = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The norm of vectors over `dim`, of the elements where `mask` is true."""
    x, mask = parts(input, mask)
    order = 2.0 if ord is None else ord
    filled = _filled(x, mask, inf if order == -inf else 0)
    wider = None if dtype is x.dtype else dtype
    return op.vector_norm(filled, order, dims_of(dim, x.ndim), bool(keepdim), dtype=wider)


def _variance(
    input: object,
    dim: AnyDims,
    unbiased: bool | None,
    correction: float | None,
    keepdim: bool | None,
    dtype: DType | None,
    mask: Tensor | None,
) -> Tensor:
    if unbiased is not None and correction is not None:
        raise ValueRangeError("Only one of unbiased and correction may be given")
    less = 1.0 if correction is None else float(correction)
    if unbiased is not None:
        less = 1.0 if unbiased else 0.0
    x, mask = parts(input, mask)
    result = dtype or (x.dtype if x.dtype.is_differentiable else float32)
    wide = result if result.is_differentiable else float32
    count = _count(x, mask, dim, True)
    centred = x - sum(x, dim, keepdim=True, dtype=result, mask=mask) / count
    total = sum(centred * centred.conj(), dim, keepdim=keepdim, dtype=wide, mask=mask)
    count = op.reshape(count, total.shape)
    if less:
        count = op.maximum(
            op.to_dtype(count, wide.to_real()) - less, op.zeros((), dtype=wide.to_real(), device=x.device)
        )
    return op.to_dtype(total / count, result)


@masked("var")
def var(
    input: object,
    dim: AnyDims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The variance over `dim` of the elements where `mask` is true, divided by their number less `correction`, or 1."""
    return _variance(input, dim, unbiased, correction, keepdim, dtype, mask)


@masked("std")
def std(
    input: object,
    dim: AnyDims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The square root of the variance, as `var`."""
    return op.sqrt(_variance(input, dim, unbiased, correction, keepdim, dtype, mask))


# --- results of the input's shape -------------------------------------------------------------------------------


@masked("cumsum")
def cumsum(input: object, dim: Dim, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Sums along `dim` up to each element, of the elements where `mask` is true."""
    x, mask = parts(input, mask)
    settled = dtype or x.dtype
    return op.to_dtype(op.cumsum(_filled(x, mask, 0), dims_of(dim, x.ndim)[0], dtype=settled), settled)


@masked("cumprod")
def cumprod(input: object, dim: Dim, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Products along `dim` up to each element, of the elements where `mask` is true."""
    x, mask = parts(input, mask)
    settled = dtype or x.dtype
    return op.to_dtype(op.cumprod(_filled(x, mask, 1), dims_of(dim, x.ndim)[0], dtype=settled), settled)


def _normalising(name: str, doc: str, hidden: Callable[[Tensor, str], Result]) -> None:
    """Define a function of the softmax family; `hidden` gives the number that takes no part."""

    @masked(name)
    def normalised(input: object, dim: Dim, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
        x, mask = parts(input, mask)
        filled = x if mask is None else _filled(x, mask, hidden(x, name))
        return getattr(op, name)(filled, dims_of(dim, x.ndim)[0], dtype=dtype or x.dtype)

    normalised.__doc__ = doc


_ALONG = "along `dim` of the elements where `mask` is true; NaN where there are none."
_normalising("softmax", f"The softmax {_ALONG}", _least)
_normalising("log_softmax", f"The logarithm of the softmax {_ALONG}", _least)
_normalising("softmin", f"The softmax of the negative elements {_ALONG}", _most)


@masked("normalize")
def normalize(
    input: object, ord: float, dim: Dim, *, eps: float = 1e-12, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The elements where `mask` is true, else 0, divided by their norm along `dim`, or by `eps` if that is larger."""
    x, mask = parts(input, mask)
    length = norm(x, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    least = op.full((), eps, dtype=length.dtype, device=length.device)
    return _filled(x, mask, 0) / op.maximum(length, least)


@masked("logaddexp")
def logaddexp(
    input: Arg,
    other: Arg,
    *,
    dtype: DType | None = None,
    input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:
    """The logarithm of the sum of exponentials of two tensors, each where its mask is true."""
    sides: list[Tensor] = []
    for side, mask in ((input, input_mask), (other, other_mask)):
        x, present = parts(side, mask)
        sides.append(x if present is None else _filled(x, present, _least(x, "logaddexp")))
    return op.to_dtype(op.logaddexp(*sides), dtype or input.dtype)
