"""Functions of the elements where a mask is true: all others have no influence on the result."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

from weft._base.dtype import BOOL, COMPLEX, FLOAT, DType, bool_, float32, int64
from weft._base.guards import TUPLE
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

_PUBLIC = Public(module="masked")


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
    if dim is None or (isinstance(dim, TUPLE) and not dim):  # an integer of NumPy's is equal to nothing
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


def _reduction(name: str, doc: str) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Make a function of `(x, mask, dims, keepdim, dtype)` a public reduction over dims, by default over all."""

    def make(body: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @composite(name, doc=doc, public=_PUBLIC)
        def reduction(
            input: object,
            dim: AnyDims = None,
            *,
            keepdim: bool | None = False,
            dtype: DType | None = None,
            mask: Tensor | None = None,
        ) -> Tensor:
            x, mask = parts(input, mask)
            return body(x, mask, dims_of(dim, x.ndim), bool(keepdim), dtype)

        return reduction

    return make


Mask = Tensor | None


@_reduction(
    "sum", "The sum over `dim` of the elements where `mask` is true, by default of all; 0 where there are none."
)
def sum(x: Tensor, mask: Mask, dims: tuple[int, ...], keepdim: bool, dtype: DType | None) -> Tensor:
    return op.sum(_filled(x, mask, 0), dims, keepdim, dtype=dtype or _widened(x.dtype))


@_reduction("prod", "The product over `dim` of the elements where `mask` is true; 1 where there are none.")
def prod(x: Tensor, mask: Mask, dims: tuple[int, ...], keepdim: bool, dtype: DType | None) -> Tensor:
    result = op.to_dtype(_filled(x, mask, 1), dtype or _widened(x.dtype))
    for d in reversed(dims):
        result = op.prod(result, d, keepdim)
    return result


Hidden = Callable[[Tensor, str], Result]
"""The number that takes no part in a function, for a tensor and the function's name."""


def _without_hidden(x: Tensor, mask: Mask, name: str, hidden: Hidden) -> Tensor:
    return x if mask is None else _filled(x, mask, hidden(x, name))


def _extreme_element(name: str, doc: str, hidden: Hidden) -> None:
    @_reduction(name, doc)
    def extreme(x: Tensor, mask: Mask, dims: tuple[int, ...], keepdim: bool, dtype: DType | None) -> Tensor:
        result = getattr(op, name)(_without_hidden(x, mask, name, hidden), dims, keepdim)
        return op.to_dtype(result, dtype or x.dtype)


def _index_of_extreme(name: str, doc: str, hidden: Hidden) -> None:
    @composite(name, doc=doc, public=_PUBLIC)
    def index(
        input: object,
        dim: Dim | None = None,
        *,
        keepdim: bool | None = False,
        dtype: DType | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        x, mask = parts(input, mask)
        result = getattr(op, name)(_without_hidden(x, mask, name, hidden), dim, bool(keepdim))
        return op.to_dtype(result, dtype or x.dtype)


_OVER = "element over `dim` where `mask` is true; the"
_extreme_element("amax", f"The largest {_OVER} least number of the type where there is none.", _least)
_extreme_element("amin", f"The smallest {_OVER} largest number of the type where there is none.", _most)
_INDEX = "The index along `dim` of the {} element where `mask` is true, in the type of the elements."
_index_of_extreme("argmax", _INDEX.format("largest"), _least)
_index_of_extreme("argmin", _INDEX.format("smallest"), _most)


def _count(x: Tensor, mask: Tensor | None, dim: object, keepdim: bool) -> Tensor:
    """The number of elements that take part."""
    present = op.ones(x.shape, dtype=bool_, device=x.device) if mask is None else mask
    return op.sum(present, dims_of(dim, x.ndim), keepdim)


@_reduction("mean", "The mean over `dim` of the elements where `mask` is true; NaN where there are none.")
def mean(x: Tensor, mask: Mask, dims: tuple[int, ...], keepdim: bool, dtype: DType | None) -> Tensor:
    settled = dtype or x.dtype
    if not settled.is_differentiable:
        raise ValueRangeError(
            f"mean(): Could not infer output dtype. {'Input' if dtype is None else 'Optional'} dtype must be either a "
            f"floating point or complex dtype. Got: {settled}"
        )
    return sum(x, dims, keepdim=keepdim, dtype=settled, mask=mask) / _count(x, mask, dims, keepdim)


@composite(public=_PUBLIC)
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


@composite(public=_PUBLIC)
def logsumexp(
    input: object, dim: AnyDims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The logarithm of the sum over `dim` of exponentials where `mask` is true."""
    x, mask = parts(input, mask)
    least = -inf if x.is_complex() else None if mask is None else _least(x, "logsumexp")
    return op.to_dtype(op.logsumexp(_filled(x, mask, least), dims_of(dim, x.ndim), keepdim), dtype or x.dtype)


@composite(public=_PUBLIC)
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


def _spread(name: str, doc: str, settle: Callable[[Tensor], Tensor]) -> None:
    """Define the variance, or what `settle` makes of it."""

    @composite(name, doc=doc, public=_PUBLIC)
    def spread(
        input: object,
        dim: AnyDims = None,
        unbiased: bool | None = None,
        *,
        correction: float | None = None,
        keepdim: bool | None = False,
        dtype: DType | None = None,
        mask: Tensor | None = None,
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
            none = op.zeros((), dtype=wide.to_real(), device=x.device)
            count = op.maximum(op.to_dtype(count, wide.to_real()) - less, none)
        return settle(op.to_dtype(total / count, result))


_DIVISOR = "divided by their number less `correction`, or 1."
_spread("var", f"The variance over `dim` of the elements where `mask` is true, {_DIVISOR}", lambda variance: variance)
_spread("std", "The square root of the variance, as `var`.", op.sqrt)


# --- results of the input's shape -------------------------------------------------------------------------------


def _along(name: str, doc: str, hidden: Hidden) -> None:
    """Define a function along a dim whose result has the input's shape."""

    @composite(name, doc=doc, public=_PUBLIC)
    def along(input: object, dim: Dim, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
        x, mask = parts(input, mask)
        elements, settled = _without_hidden(x, mask, name, hidden), dtype or x.dtype
        result = getattr(op, name)(elements, dims_of(dim, x.ndim)[0], dtype=settled)
        return result if result.dtype is settled else op.to_dtype(result, settled)


_UP_TO = "along `dim` up to each element, of the elements where `mask` is true."
_along("cumsum", f"Sums {_UP_TO}", lambda x, name: 0)
_along("cumprod", f"Products {_UP_TO}", lambda x, name: 1)
_ALONG = "along `dim` of the elements where `mask` is true; NaN where there are none."
_along("softmax", f"The softmax {_ALONG}", _least)
_along("log_softmax", f"The logarithm of the softmax {_ALONG}", _least)
_along("softmin", f"The softmax of the negative elements {_ALONG}", _most)


@composite(public=_PUBLIC)
def normalize(
    input: object, ord: float, dim: Dim, *, eps: float = 1e-12, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The elements where `mask` is true, else 0, divided by their norm along `dim`, or by `eps` if that is larger."""
    x, mask = parts(input, mask)
    length = norm(x, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    least = op.full((), eps, dtype=length.dtype, device=length.device)
    return _filled(x, mask, 0) / op.maximum(length, least)


@composite(public=_PUBLIC)
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
