"""Products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from math import prod

import jax.numpy as jnp

from weft._base.dtype import COMPLEX, FLOAT, INTEGER
from weft.errors import DTypeError, ShapeError
from weft.ops._autocast import ACCELERATOR_LOWER, ACCELERATOR_PROMOTE, Cast, PerDevice
from weft.ops._dims import Factors, OfShapes, PartOf, Sizes, broadcast_shapes, einsum
from weft.ops._kernels.product import PRODUCT, added
from weft.ops._kinds import Array, Arrays, Scalar
from weft.ops._rows import alias, factor, require, require_scale
from weft.ops._table import (
    COMMON_TYPE,
    IN_LINALG,
    IS_LINEAR,
    LOWERED,
    Arithmetic,
    Derivative,
    Promote,
    Public,
    Shards,
    Types,
    defop,
)
from weft.ops._type_names import c_name, scalar_name
from weft.ops.shape import expanded

product = partial(defop, types=LOWERED, shards=Shards(partial="sum", linear="each"))
fused = partial(
    defop, types=LOWERED, public=Public(inplace=True, older=True), shards=Shards(partial="sum", addend="input")
)

_NUMBERS = (INTEGER, FLOAT, COMPLEX)


def _times(shape: Sizes) -> str:
    return "x".join(map(str, shape))


# --- checks, with PyTorch's error texts ---


def _check_mm(a: Array, b: Array) -> None:
    """Require two matrices whose sizes fit."""
    if a.shape[-1] != b.shape[0]:
        rows = a.size // a.shape[-1] if a.shape[-1] else a.shape[0]
        shapes = f"{rows}x{a.shape[-1]} and {_times(b.shape)}"
        raise ShapeError(f"mat1 and mat2 shapes cannot be multiplied ({shapes})")
    require(a, "addmm_impl_cpu_", *_NUMBERS)
    if a.dtype != b.dtype:
        raise DTypeError(f"expected m1 and m2 to have the same dtype, but got: {c_name(a)} != {c_name(b)}")


def _check_bmm(a: Array, b: Array) -> None:
    """Require two batches of matrices whose sizes fit."""
    for i, batch in enumerate((a, b), 1):
        if batch.ndim != 3:
            raise ShapeError(f"batch{i} must be a 3D tensor")
    _check_stacks(a.shape, b.shape)
    _check_same_dtype(a, b, "bmm")


def _check_stacks(a: Sizes, b: Sizes) -> None:
    if (a[0], a[2]) != b[:2]:
        raise ShapeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{a[0]}, {a[2]}] "
            f"but got: [{b[0]}, {b[1]}]."
        )


def _check_same_dtype(a: Array, b: Array, kernel: str) -> None:
    require(a, kernel, *_NUMBERS)
    if a.dtype != b.dtype:
        raise DTypeError(f"expected scalar type {scalar_name(a)} but found {scalar_name(b)}")


def _check_mv(added: Sizes, mat: Array, vec: Array) -> None:
    """Require a matrix and a vector whose sizes fit, and a summand that broadcasts to their product."""
    if mat.ndim != 2 or vec.ndim != 1 or len(added) > 1:
        raise ShapeError(f"vector + matrix @ vector expected, got {len(added)}, {mat.ndim}, {vec.ndim}")
    if mat.shape[1] != vec.shape[0] or added not in ((), (1,), mat.shape[:1]):
        raise ShapeError(
            f"size mismatch, got input ({added[0] if added else 1}), mat ({_times(mat.shape)}), vec ({vec.shape[0]})"
        )


def _check_mv_dtypes(added: Array, mat: Array, vec: Array) -> None:
    require(mat, "addmv_impl_cpu", *_NUMBERS)
    if not added.dtype == mat.dtype == vec.dtype:
        words = f"{scalar_name(added)}, {scalar_name(mat)}, and {scalar_name(vec)}"
        raise DTypeError(f"addmv input tensors must have the same dtype, but got {words}")


def _check_dot(a: Array, b: Array) -> None:
    """Require two vectors of one length and one type."""
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"1D tensors expected, but got {a.ndim}D and {b.ndim}D tensors")
    if a.dtype != b.dtype:
        raise DTypeError(
            f"dot : expected both vectors to have same dtype, but found {scalar_name(a)} and {scalar_name(b)}"
        )
    if a.size != b.size:
        raise ShapeError(
            f"inconsistent tensor size, expected tensor [{a.size}] and src [{b.size}] to have the same "
            f"number of elements, but got {a.size} and {b.size} elements respectively"
        )
    require(a, "dot", *_NUMBERS)


# --- products of two ---


@product(dims=einsum("m k, k n -> m n", product=True), native=[PRODUCT])
def mm(input: Array, mat2: Array) -> Array:
    """Product of two matrices."""
    for name, matrix in (("self", input), ("mat2", mat2)):
        if matrix.ndim != 2:
            raise ShapeError(f"{name} must be a matrix")
    _check_mm(input, mat2)
    return jnp.matmul(input, mat2)


@product(dims=einsum("b m k, b k n -> b m n", product=True), native=[PRODUCT])
def bmm(input: Array, mat2: Array) -> Array:
    """Products of the matrices of two batches."""
    _check_bmm(input, mat2)
    return jnp.matmul(input, mat2)


@product(dims=einsum("m k, k -> m"), types=Types(autocast=ACCELERATOR_LOWER, arithmetic=Arithmetic.OWN))
def mv(input: Array, vec: Array) -> Array:
    """Product of a matrix and a vector."""
    _check_mv(input.shape[:1], input, vec)
    _check_mv_dtypes(vec, input, vec)
    return jnp.matmul(input, vec)


@product(dims=einsum("k, k ->"), types=Types(autocast=ACCELERATOR_PROMOTE, arithmetic=Arithmetic.OWN))
def dot(input: Array, tensor: Array) -> Array:
    """Sum of the products of two vectors' elements."""
    _check_dot(input, tensor)
    return jnp.dot(input, tensor)


@product(dims=einsum("k, k ->"), types=Types(autocast=ACCELERATOR_PROMOTE, arithmetic=Arithmetic.OWN))
def vdot(input: Array, other: Array) -> Array:
    """As `dot`, with the first vector conjugated."""
    _check_dot(input, other)
    return jnp.vdot(input, other)


@defop(derivative=Derivative(name="Mul"), dims=einsum("m, n -> m n"), types=COMMON_TYPE, shards=IS_LINEAR)
def outer(input: Array, vec2: Array) -> Array:
    """The product of every element of one vector with every element of the other."""
    for name, vector in (("self", input), ("vec2", vec2)):
        if vector.ndim != 1:
            raise ShapeError(f"outer: Expected 1-D argument {name}, but got {vector.ndim}-D")
    return input[:, None] * vec2


alias(outer, "ger")


def _inner_dims(shapes: Sequence[Sizes]) -> Factors:
    if not (shapes[0] and shapes[1]):
        return einsum("... , ... -> ...")(shapes)
    a, b = ((*(f"{x}:{i}" for i in range(len(s) - 1)), PartOf("k")) for x, s in zip("ab", shapes, strict=True))
    return Factors((a, b), ((*a[:-1], *b[:-1]),))


@product(
    dims=_inner_dims,
    types=Types(autocast=PerDevice(cpu=Cast.LOWER, accelerator=Cast.PROMOTE), arithmetic=Arithmetic.OWN),
)
def inner(input: Array, other: Array) -> Array:
    """Sum of products over the last dims; a zero-dim tensor scales the other one."""
    if input.dtype != other.dtype:
        raise DTypeError("both inputs should have same dtype")
    if input.ndim and other.ndim and input.shape[-1] != other.shape[-1]:
        raise ShapeError(
            "inner() the last dimension must match on both input tensors but got shapes "
            f"{list(input.shape)} and {list(other.shape)}"
        )
    require(input, "addmm_impl_cpu_", *_NUMBERS)
    return jnp.inner(input, other)


def _matmul_dims(shapes: Sequence[Sizes]) -> Factors:
    left = "k" if len(shapes[0]) == 1 else "... m k"
    right = "k" if len(shapes[1]) == 1 else "... k n"
    kept = "... " * ("..." in left + right) + "m " * ("m" in left) + "n" * ("n" in right)
    return einsum(f"{left}, {right} -> {kept}", product=True)(shapes)


def _check_matmul(a: Array, b: Array) -> None:
    """Check the shapes by the numbers of dims: PyTorch's texts name the product that it would have chosen."""
    if min(a.ndim, b.ndim) == 0:
        raise ShapeError(f"both arguments to matmul need to be at least 1D, but they are {a.ndim}D and {b.ndim}D")
    if a.ndim == 1 and b.ndim == 1:
        return _check_dot(a, b)
    if b.ndim == 1:
        flat = a.reshape(prod(a.shape[:-1]), a.shape[-1])
        _check_mv(flat.shape[:1], flat, b)
        return _check_mv_dtypes(b, a, b)
    if b.ndim == 2:
        return _check_mm(a, b)
    left = a if a.ndim > 1 else a[None]
    batch = broadcast_shapes(left.shape[:-2], b.shape[:-2])
    _check_stacks((prod(batch), *left.shape[-2:]), (prod(batch), *b.shape[-2:]))
    return _check_same_dtype(a, b, "bmm")


def _product_name(shapes: Sequence[Sizes], out: Sizes) -> str:
    """PyTorch's name of the derivative, which depends on the numbers of dims."""
    del out
    return {(1, 1): "Dot", (2, 1): "Mv", (2, 2): "Mm"}.get((len(shapes[0]), len(shapes[1])), "Bmm")


@product(
    derivative=Derivative(name=_product_name),
    dims=_matmul_dims,
    public=Public(dunder=("__matmul__", "__rmatmul__"), also=("linalg",)),
    native=[PRODUCT],
)
def matmul(input: Array, other: Array) -> Array:
    """Product over the last dim of `input` and the last but one of `other`; leading dims broadcast."""
    _check_matmul(input, other)
    return jnp.matmul(input, other)


# --- products added to something ---


def _added(input: Array, term: Array, beta: Scalar, alpha: Scalar) -> Array:
    """`beta * input + alpha * term` in the type of `term`; `input` is not read if `beta` is 0."""
    start = jnp.broadcast_to(input, expanded(input, term.shape))
    if not isinstance(beta, int):
        scale = factor(beta, term).astype(term.dtype)
        start = jnp.where(scale == 0, jnp.zeros_like(start), scale * start)
    return start + (term if isinstance(alpha, int) else factor(alpha, term).astype(term.dtype) * term)


def _added_dims(out: str, *terms: str) -> OfShapes:
    """The rule of a product with these terms, where a first input broadcasts to the result."""

    def rule(shapes: Sequence[Sizes]) -> Factors:
        start = out.split()[len(out.split()) - len(shapes[0]) :]
        return einsum(f"{', '.join((' '.join(start), *terms))} -> {out}", product=True)(shapes)

    return rule


@fused(dims=_added_dims("m n", "m k", "k n"), native=[added(_added)])
def addmm(input: Array, mat1: Array, mat2: Array, *, beta: Scalar = 1, alpha: Scalar = 1) -> Array:
    """`beta * input + alpha * (mat1 @ mat2)`."""
    for name, matrix in (("mat1", mat1), ("mat2", mat2)):
        if matrix.ndim != 2:
            raise ShapeError(f"{name} must be a matrix, got {matrix.ndim}-D tensor")
    for name, other in (("self", input), ("mat1", mat1)):
        if other.dtype != mat2.dtype:
            words = f"{scalar_name(other)} and {scalar_name(mat2)}"
            raise DTypeError(f"{name} and mat2 must have the same dtype, but got {words}")
    _check_mm(mat1, mat2)
    return _added(input, jnp.matmul(mat1, mat2), beta, alpha)


@fused(dims=_added_dims("m", "m k", "k"), types=Types(autocast=ACCELERATOR_LOWER, arithmetic=Arithmetic.OWN))
def addmv(input: Array, mat: Array, vec: Array, *, beta: Scalar = 1, alpha: Scalar = 1) -> Array:
    """`beta * input + alpha * (mat @ vec)`."""
    _check_mv(input.shape, mat, vec)
    _check_mv_dtypes(input, mat, vec)
    return _added(input, jnp.matmul(mat, vec), beta, alpha)


@fused(
    dims=_added_dims("m n", "m", "n"),
    types=Types(promote=Promote.COMMON, autocast=ACCELERATOR_LOWER, arithmetic=Arithmetic.OWN),
)
def addr(input: Array, vec1: Array, vec2: Array, *, beta: Scalar = 1, alpha: Scalar = 1) -> Array:
    """`beta * input + alpha * outer(vec1, vec2)`."""
    for name, vector in (("vec1", vec1), ("vec2", vec2)):
        if vector.ndim != 1:
            raise ShapeError(f"addr: Expected 1-D argument {name}, but got {vector.ndim}-D")
    for name, scale in (("beta", beta), ("alpha", alpha)):
        require_scale(name, scale, input)
    return _added(input, vec1[:, None] * vec2, beta, alpha)


@fused(dims=_added_dims("b m n", "b m k", "b k n"), native=[added(_added)])
def baddbmm(input: Array, batch1: Array, batch2: Array, *, beta: Scalar = 1, alpha: Scalar = 1) -> Array:
    """`beta * input + alpha * (batch1 @ batch2)`, batch by batch."""
    _check_bmm(batch1, batch2)
    if input.dtype != batch1.dtype:
        words = f"input {c_name(input)}, batch1: {c_name(batch1)}, batch2: {c_name(batch2)}"
        raise DTypeError(f"Input dtypes must be the same, got: {words}")
    return _added(input, jnp.matmul(batch1, batch2), beta, alpha)


@fused(dims=_added_dims("m n", "b m k", "b k n"))
def addbmm(input: Array, batch1: Array, batch2: Array, *, beta: Scalar = 1, alpha: Scalar = 1) -> Array:
    """`beta * input + alpha * (batch1 @ batch2)`, summed over the batch."""
    for i, batch in enumerate((batch1, batch2), 1):
        if batch.ndim != 3:
            raise ShapeError(f"batch{i} must be a 3D tensor")
    if batch1.shape[0] != batch2.shape[0]:
        raise ShapeError(
            f"batch1 and batch2 must have same number of batches, got {batch1.shape[0]} and {batch2.shape[0]}"
        )
    if batch1.shape[2] != batch2.shape[1]:
        shapes = f"{_times(batch1.shape[1:])} and {_times(batch2.shape[1:])}"
        raise ShapeError(f"Incompatible matrix sizes for bmm ({shapes})")
    _check_same_dtype(batch1, batch2, "addmm_impl_cpu_")
    _check_same_dtype(batch1, input, "addmm_impl_cpu_")
    return _added(input, jnp.einsum("bmk,bkn->mn", batch1, batch2), beta, alpha)


# --- products of many ---


def _check_chain(shapes: Sequence[Sizes]) -> None:
    """Require matrices that fit; only the first and the last may be vectors."""
    count = len(shapes)
    if count < 2:
        raise ShapeError(f"multi_dot(): expected at least 2 tensors but got {count}")
    ends = {0: "the first tensor", count - 1: "the last tensor"}
    for i, shape in enumerate(shapes):
        if len(shape) != 2 and not (len(shape) == 1 and i in ends):
            what = f"{ends[i]} must be 1D or 2D" if i in ends else f"tensor {i} must be 2D"
            raise ShapeError(f"multi_dot(): {what} but got {len(shape)}D")
    for i, (a, b) in enumerate(pairwise(shapes)):
        if a[-1] != b[0]:
            pair = f"tensors {i} and {i + 1} with shapes {list(a)} and {list(b)}"
            raise ShapeError(f"multi_dot(): {pair} cannot be multiplied")


def _chain_dims(shapes: Sequence[Sizes]) -> Factors:
    _check_chain(shapes)
    met = [PartOf(i) for i in range(1, len(shapes))]
    rows = ("rows",) * (len(shapes[0]) - 1)
    columns = ("columns",) * (len(shapes[-1]) - 1)
    return Factors(((*rows, met[0]), *pairwise(met), (met[-1], *columns)), ((*rows, *columns),), product=True)


@product(dims=_chain_dims, public=IN_LINALG)
def multi_dot(tensors: Arrays) -> Array:
    """Product of a chain of matrices in the cheapest order; the first and the last may be vectors."""
    for i, t in enumerate(tensors):
        if t.dtype != tensors[0].dtype:
            raise DTypeError(
                "multi_dot(): all tensors must have be the same dtype but tensor 0 is "
                f"{c_name(tensors[0])} and tensor {i} {c_name(t)}"
            )
    return jnp.linalg.multi_dot(tensors)
