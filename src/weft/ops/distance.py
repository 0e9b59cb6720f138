"""Norms of vectors and matrices, and the operators made of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import jax
import jax.numpy as jnp

from weft.errors import DimError, DTypeError, LinAlgError, OutOfRangeError, ShapeError
from weft.ops._autocast import ACCELERATOR_FLOAT32
from weft.ops._dims import Factors, Sizes, Static, broadcast_shapes, reduces, wrap_dim
from weft.ops._findings import Failures
from weft.ops._kinds import Array, Dim, DimList, Dims, DTypeArg, Ord, Scalar
from weft.ops._norms import vector_norms
from weft.ops._reduce import axes, is_complex, is_inexact, real_type, to_dtype, wide
from weft.ops._table import (
    ACCELERATOR_IN_FLOAT32,
    IN_FLOAT32,
    IN_LINALG,
    IN_PLACE,
    Check,
    Derivative,
    Promote,
    Types,
    defop,
)
from weft.ops._type_names import scalar_name
from weft.ops.decomposition import check_floating, diverges, non_finite


def _require_float(name: str, x: jax.Array) -> None:
    if not is_inexact(x.dtype):
        word = scalar_name(x)
        raise DTypeError(f"{name}: Expected a floating point or complex tensor as input. Got {word}")


def _require_dtype(name: str, x: jax.Array, dtype: DTypeArg) -> None:
    """Refuse a `dtype` that would drop imaginary parts or precision."""
    target = to_dtype(x, dtype)
    if is_complex(target.dtype) != is_complex(x.dtype):
        kind = "complex" if is_complex(x.dtype) else "real"
        raise DTypeError(f"{name}: dtype should be {kind} for {kind} inputs, but got {scalar_name(target)}")
    if jnp.promote_types(x.dtype, target.dtype) != target.dtype:
        raise DTypeError(
            f"{name}: the dtype of the input ({scalar_name(x)}) should be convertible without narrowing "
            f"to the specified dtype ({scalar_name(target)})"
        )


def _require_identity(input: jax.Array, p: float, dim: Dims) -> None:
    """Refuse empty dims where the norm of nothing is undefined."""
    empty = [d for d in axes(dim, input.ndim) if input.shape[d] == 0]
    if not empty or (0 <= p < inf):
        return
    location = f"the dimension {empty[0]} because this dimension is empty and"
    if dim is None or dim == ():
        location = "an empty tensor because"
    raise ShapeError(
        f"linalg.vector_norm cannot compute the {p:g} norm on {location} the operation does not have an identity"
    )


@defop(derivative=Derivative(name="LinalgVectorNorm"), dims=reduces, types=ACCELERATOR_IN_FLOAT32, public=IN_LINALG)
def vector_norm(x: Array, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: DTypeArg = None) -> Array:
    """The `ord`-norm over `dim`, of all elements as one vector when None; real."""
    _require_float("linalg.vector_norm", x)
    _require_dtype("linalg.vector_norm", x, dtype)
    _require_identity(x, ord, dim)
    x = to_dtype(x, dtype)
    return vector_norms(wide(x), ord, axes(dim, x.ndim), keepdims=keepdim).astype(real_type(x.dtype))


def _singular_norm(x: jax.Array, ord: Ord, dim: tuple[int, int]) -> jax.Array:
    """The sum, the largest or the smallest of the singular values of the matrices over `dim`."""
    values = jnp.linalg.svd(jnp.moveaxis(x, dim, (-2, -1)), compute_uv=False)
    if isinstance(ord, str):  # "nuc"
        return jnp.sum(values, axis=-1)
    return _extreme_of_norms(values, ord, -1, -1)


def _extreme_of_norms(norms: jax.Array, ord: float, axis: int, dim: int, *, keepdims: bool = False) -> jax.Array:
    """The largest along an axis (0 of none) or, for a negative `ord`, the smallest. Errors call the axis `dim`."""
    is_empty = not norms.shape[axis]
    if is_empty and ord < 0:
        raise DimError(f"amin(): Expected reduction dim {dim} to have non-zero size.")
    return (jnp.sum if is_empty else jnp.max if ord > 0 else jnp.min)(norms, axis=axis, keepdims=keepdims)


def _matrix_dims(x: jax.Array, dim: Dims) -> tuple[int, int]:
    if x.ndim < 2:
        raise ShapeError("linalg.matrix_norm: The input tensor A must have at least 2 dimensions.")
    if len(dim) != 2:
        raise ShapeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {' '.join(map(str, dim))}")
    rows, columns = (wrap_dim(d, x.ndim) for d in dim)
    if rows == columns:
        raise ShapeError(f"linalg.matrix_norm: dims must be different. Got ({rows}, {columns})")
    return rows, columns


def _has_no_singular_values(A: Array, ord: Ord, dim: DimList) -> Failures | None:
    takes_them = ord == "nuc" or (not isinstance(ord, str) and abs(ord) == 2)
    return non_finite(jnp.moveaxis(A, dim, (-2, -1))) if takes_them else None


@diverges(
    dims=reduces,
    types=IN_FLOAT32,
    public=IN_LINALG,
    check=Check(
        elements=_has_no_singular_values,
        text="linalg.svd: {0}The algorithm failed to converge because the input matrix contained non-finite values.",
        error=LinAlgError,
    ),
)
def matrix_norm(
    A: Array, ord: Ord = "fro", dim: DimList = (-2, -1), keepdim: bool = False, *, dtype: DTypeArg = None
) -> Array:
    """The norm of the matrices over two dims: "fro", "nuc", or 1, 2, inf and their negatives. The result is real."""
    _require_float("linalg.matrix_norm", A)
    rows, columns = _matrix_dims(A, dim)
    _require_dtype("linalg.matrix_norm", A, dtype)
    # The square of 256 is no float16 any more.
    x = wide(to_dtype(A, dtype))
    if ord == "fro":
        out = vector_norms(x, 2, (rows, columns))
    elif ord == "nuc" or (not isinstance(ord, str) and abs(ord) == 2):
        check_floating("linalg.matrix_norm", A)
        out = jnp.expand_dims(_singular_norm(x, ord, (rows, columns)), (rows, columns))
    elif not isinstance(ord, str) and abs(ord) in (1, inf):
        within, across = (rows, columns) if abs(ord) == 1 else (columns, rows)
        sums = jnp.sum(jnp.abs(x), axis=within, keepdims=True)
        out = _extreme_of_norms(sums, ord, across, across - (across > within), keepdims=True)
    else:
        raise ShapeError(
            f"linalg.matrix_norm: Order {ord if isinstance(ord, str) else format(ord, 'g')} not supported."
        )
    out = out.astype(real_type(A.dtype if dtype is None else dtype.numpy))
    return out if keepdim else jnp.squeeze(out, (rows, columns))


def _to_scalar_dims(shapes: Sequence[Sizes]) -> Factors:
    """Inputs broadcast; the result has no dims."""
    ndim = len(broadcast_shapes(*shapes))
    return Factors(tuple(tuple(range(ndim - len(s), ndim)) for s in shapes), ((),))


@defop(dims=_to_scalar_dims, types=Types(promote=Promote.COMMON, autocast=ACCELERATOR_FLOAT32))
def dist(input: Array, other: Array, p: float = 2) -> Array:
    """The p-norm of the difference of two inputs that broadcast; real and zero-dim."""
    if not is_inexact(input.dtype):
        word = scalar_name(input)
        text = "norm(): input dtype should be either floating point or complex."
        raise DTypeError(f"{text} Got {word} instead.")
    off = wide(input - other)
    return vector_norms(off, p, axes(None, off.ndim), keepdims=False).astype(real_type(input.dtype))


def _slices(shapes: Sequence[Sizes], static: Static) -> Factors:
    """Every dim but `dim` must be whole."""
    letters = tuple(range(len(shapes[0])))
    return Factors((letters,), (letters,), frozenset(letters) - {static["dim"] % max(len(letters), 1)})


def _not_negative(maxnorm: Scalar) -> None:
    if maxnorm < 0:
        raise OutOfRangeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm:g}")


@defop(dims=_slices, types=ACCELERATOR_IN_FLOAT32, public=IN_PLACE, check=Check(limits=_not_negative))
def renorm(input: Array, p: float, dim: Dim, maxnorm: Scalar) -> Array:
    """`input` with the slices along `dim` whose p-norm exceeds `maxnorm` scaled down to it."""
    _require_float("linalg.vector_norm", input)
    if p <= 0:
        raise ShapeError("renorm: non-positive-norm not supported")
    if input.ndim < 2:
        raise ShapeError(f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions")
    x = wide(input)
    size = vector_norms(x, p, tuple(d for d in range(x.ndim) if d != dim))
    most = jnp.asarray(maxnorm).astype(size.dtype)
    # 1e-7 keeps the scaled norm just under the bound, as in PyTorch.
    return (x * jnp.where(size > most, most / (size + 1e-7), 1)).astype(input.dtype)
