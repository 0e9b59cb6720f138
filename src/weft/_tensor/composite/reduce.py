"""Reductions with arguments that do not fit a single row."""

from __future__ import annotations

from weft._base.dtype import DType
from weft._base.types import AnyCallable
from weft._tensor.arguments import AnyDims
from weft._tensor.codegen import op
from weft._tensor.functions import composite
from weft._tensor.tensor import Results, Tensor
from weft.errors import ArgumentError
from weft.ops._table import NO_METHOD, OTHER_OUT, Public


def _extreme(name: str, whole: str, along: str, pair: str) -> AnyCallable:
    """`max` or `min`, composed of the rows for all elements, along a dim, and between two tensors."""

    @composite(
        name,
        public=Public(out=OTHER_OUT),
        doc=f"The {name}imum of all elements, along `dim` with its indices, or of two tensors.",
    )
    def extreme(
        input: Tensor, dim: AnyDims = None, keepdim: bool | None = None, *, other: Tensor | None = None
    ) -> Results:
        other = dim if isinstance(dim, Tensor) else other
        if other is not None:
            return getattr(op, pair)(input, other)
        if dim is not None:
            return getattr(op, along)(input, dim, bool(keepdim))
        if keepdim is not None:
            raise ArgumentError(f"{name}() received an invalid combination of arguments: keepdim needs a dim")
        return getattr(op, whole)(input)

    return extreme


max = _extreme("max", "amax", "max_dim", "maximum")
min = _extreme("min", "amin", "min_dim", "minimum")


def _median(name: str) -> AnyCallable:
    """`median` or `nanmedian`, composed of the rows for all elements and along a dim."""

    @composite(
        name, public=Public(out=OTHER_OUT), doc=f"The {name} of all elements, or of those along `dim` with its indices."
    )
    def median(input: Tensor, dim: AnyDims = None, keepdim: bool = False) -> Results:
        if dim is None:
            return getattr(op, f"{name}_all")(input)
        return getattr(op, f"{name}_dim")(input, dim, keepdim)

    return median


median = _median("median")
nanmedian = _median("nanmedian")


def _moment(name: str, *, method: bool) -> AnyCallable:
    """`var`, `std` and their pairs with the mean. They take `unbiased` (also in place of `dim`) or `correction`."""

    @composite(
        name,
        doc=f"The {name.replace('_', ' and ')} over `dim`, divided by the count less `correction` (1 when None).",
        public=Public(out="") if method else NO_METHOD,
    )
    def moment(
        input: Tensor,
        dim: AnyDims = None,
        unbiased: bool | None = None,
        keepdim: bool = False,
        *,
        correction: float | None = None,
    ) -> Results:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if unbiased is not None:
            if correction is not None:
                raise ArgumentError(
                    f"{name}() received an invalid combination of arguments: give unbiased or correction"
                )
            correction = int(unbiased)
        results = getattr(op, f"{name}_dims")(input, dim, correction=correction, keepdim=keepdim)
        return tuple(results) if name.endswith("_mean") else results

    return moment


var = _moment("var", method=True)
std = _moment("std", method=True)
var_mean = _moment("var_mean", method=False)
std_mean = _moment("std_mean", method=False)


@composite(public=Public(out=OTHER_OUT))
def norm(
    input: Tensor, p: object = "fro", dim: AnyDims = None, keepdim: bool = False, dtype: DType | None = None
) -> Tensor:
    """The `p`-norm over `dim`: of vectors for a number, "fro" or None, of matrices for "nuc"."""
    if isinstance(p, str) and p != "fro":
        over = tuple(range(input.ndim)) if dim is None else dim
        return op.matrix_norm(input, p, over, keepdim, dtype=dtype)
    return op.vector_norm(input, 2 if p in (None, "fro") else p, dim, keepdim, dtype=dtype)
