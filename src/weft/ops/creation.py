"""Operators that make tensors from numbers, and complex numbers from their parts.

Factories take `size` and a settled `dtype`; defaults are filled in by `_tensor/composite/create.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from weft._base.dtype import DType
from weft.errors import DTypeError, ShapeError
from weft.ops._autocast import CPU_FLOAT32
from weft.ops._dims import Factors, Sizes, Static, pointwise
from weft.ops._float8 import converted, is_float8, through
from weft.ops._kinds import Array, DTypeArg, HostDType, Scalar, Shape
from weft.ops._rows import factory
from weft.ops._table import SAVES, Public, Types, defop
from weft.ops._type_names import scalar_name

# Constants


@factory()
def zeros(size: Shape, *, dtype: DTypeArg) -> Array:
    """Zeros."""
    return converted(jnp.zeros(size, through(dtype.numpy)), dtype.numpy)


@factory()
def ones(size: Shape, *, dtype: DTypeArg) -> Array:
    """Ones."""
    return jnp.ones(size, dtype.numpy)


@factory()
def full(size: Shape, fill_value: Scalar, *, dtype: DTypeArg) -> Array:
    """One number everywhere."""
    # By lax where that is the same: a program's first trace of this row takes 1.0 ms, by jnp 1.5.
    value, target = jnp.asarray(fill_value), dtype.numpy
    plain = jnp.issubdtype(value.dtype, jnp.floating) and jnp.issubdtype(target, jnp.floating) and not is_float8(target)
    return lax.broadcast(lax.convert_element_type(value, target) if plain else converted(value, target), size)


@factory()
def eye(size: Shape, *, dtype: DTypeArg) -> Array:
    """A matrix with ones on the diagonal."""
    return converted(jnp.eye(*size, dtype=through(dtype.numpy)), dtype.numpy)


# Sequences


def _steps_in(dtype: DType) -> HostDType:
    """The type in which PyTorch computes the steps of a sequence."""
    return jnp.int64 if not dtype.is_differentiable else jnp.promote_types(dtype.numpy, jnp.float64)


@factory()
def arange(size: Shape, start: Scalar, step: Scalar, *, dtype: DTypeArg) -> Array:
    """The numbers `start`, `start + step`, and so on; an integer `dtype` cuts both to integers first."""
    wide = _steps_in(dtype)
    first, by = (jnp.asarray(x).astype(wide) for x in (start, step))
    return (first + by * jnp.arange(size[0], dtype=wide)).astype(dtype.numpy)


def _between(count: int, start: Scalar, end: Scalar, dtype: DType) -> Array:
    """Evenly spaced numbers, exact at both ends, before they are cut to an integer `dtype`."""
    wide = _steps_in(dtype)
    first, last = (jnp.asarray(x).astype(wide) for x in (start, end))
    steps = jax.lax.optimization_barrier(jnp.float64(max(count - 1, 1)))  # XLA divides inexactly by a constant
    by = (last - first) / steps
    nth = jnp.arange(count)
    return jnp.where(nth < count / 2, first + by * nth, last - by * (count - 1 - nth))


@factory()
def linspace(size: Shape, start: Scalar, end: Scalar, *, dtype: DTypeArg) -> Array:
    """Numbers evenly spaced from `start` to `end`, both included."""
    return _between(size[0], start, end, dtype).astype(dtype.numpy)


@factory()
def logspace(size: Shape, start: Scalar, end: Scalar, base: Scalar, *, dtype: DTypeArg) -> Array:
    """Powers of `base` with exponents evenly spaced from `start` to `end`, both included."""
    return (jnp.asarray(base) ** _between(size[0], start, end, dtype)).astype(dtype.numpy)


# Windows


def _phase(count: int, periodic: bool) -> Array:
    """Positions from 0 to 1 over a window; a periodic window leaves out the last point."""
    return jnp.arange(count, dtype=jnp.float64) / max(count if periodic else count - 1, 1)


@factory()
def cosine_window(size: Shape, coefficients: tuple[float, ...], periodic: bool, *, dtype: DTypeArg) -> Array:
    """A sum of cosines: `coefficients[k]` times the cosine that has `k` periods in the window."""
    if size[0] == 1:
        return jnp.ones(size, dtype.numpy)
    angle = 2 * jnp.pi * _phase(size[0], periodic)
    waves = [a * jnp.cos(k * angle) for k, a in enumerate(coefficients)]
    return jnp.sum(jnp.stack(waves), axis=0).astype(dtype.numpy)


@factory("bartlett_window")
def triangle_window(size: Shape, periodic: bool, *, dtype: DTypeArg) -> Array:
    """A linear rise from 0 to 1, and a linear fall back to 0."""
    if size[0] == 1:
        return jnp.ones(size, dtype.numpy)
    return (1 - jnp.abs(2 * _phase(size[0], periodic) - 1)).astype(dtype.numpy)


@factory()
def kaiser_window(size: Shape, periodic: bool, beta: Scalar, *, dtype: DTypeArg) -> Array:
    """`I0(beta sqrt(1 - x^2)) / I0(beta)`, with x from -1 to 1 over the window."""
    if size[0] == 1:
        return jnp.ones(size, dtype.numpy)
    x = 2 * _phase(size[0], periodic) - 1
    sharpness = jnp.asarray(beta).astype(jnp.float64)
    return (jnp.i0(sharpness * jnp.sqrt(1 - x * x)) / jnp.i0(sharpness)).astype(dtype.numpy)


# Made of tensors


def _require_parts(first: Array, second: Array) -> None:
    """PyTorch's rules for the parts of complex numbers; there is no half-precision complex type here."""
    if not {first.dtype, second.dtype} <= {jnp.dtype("float32"), jnp.dtype("float64")}:
        raise DTypeError(
            "Expected both inputs to be Half, Float or Double tensors but got "
            f"{scalar_name(first)} and {scalar_name(second)}"
        )
    if first.dtype != second.dtype:
        raise DTypeError(
            f"Expected object of scalar type {scalar_name(first)} "
            f"but got scalar type {scalar_name(second)} for second argument"
        )


_OTHER_PARTS = "Expected object of scalar type {0} but got scalar type {1} for argument 'out'"


@defop(dims=pointwise, derivative=SAVES, public=Public(out=_OTHER_PARTS))
def complex_(real: Array, imag: Array) -> Array:
    """Complex numbers from real and imaginary parts of one float type."""
    _require_parts(real, imag)
    return jax.lax.complex(*jnp.broadcast_arrays(real, imag))


@defop(dims=pointwise, types=Types(autocast=CPU_FLOAT32), public=Public(out=_OTHER_PARTS))
def polar(abs: Array, angle: Array) -> Array:
    """Complex numbers from absolute values and angles of one float type."""
    _require_parts(abs, angle)
    return jax.lax.complex(abs * jnp.cos(angle), abs * jnp.sin(angle))


def _adds_powers(shapes: Sequence[Sizes], static: Static) -> Factors:
    """A new last dim holds the powers; where its size defaults to that of the vector, the vector must be whole."""
    ins = tuple(range(len(shapes[0])))
    return Factors((ins,), ((*ins, "power"),), frozenset(ins if static.get("N") is None else ()))


@defop(dims=_adds_powers)
def vander(x: Array, N: int | None = None, increasing: bool = False) -> Array:
    """Powers of each element of a vector, as rows: exponents `N - 1` down to 0, or up from 0; default N: the size."""
    if x.ndim != 1:
        raise ShapeError("x must be a one-dimensional tensor.")
    count = x.shape[0] if N is None else N
    if count < 0:
        raise ShapeError("N must be non-negative.")
    base = x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.int64)
    factors = jnp.where(jnp.arange(count) > 0, base[:, None], jnp.ones_like(base)[:, None])
    powers = jnp.cumprod(factors, axis=1)
    return powers if increasing else powers[:, ::-1]
