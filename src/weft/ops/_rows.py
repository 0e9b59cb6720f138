"""Helpers shared by the files of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NoReturn

import jax
import jax.numpy as jnp
from jax import lax

from weft._base.dtype import BOOL, COMPLEX, FLOAT, INTEGER, from_numpy
from weft._base.types import AnyCallable
from weft.errors import DTypeError, GradientError, UnsupportedDTypeError
from weft.ops._autocast import Cast, CastClass, PerDevice
from weft.ops._dims import from_size, pointwise
from weft.ops._jax import jvp
from weft.ops._kinds import Array, Arrays, Scalar
from weft.ops._table import PLAIN, TABLE, Derivative, OpDef, Promote, Public, Types, defop
from weft.ops._type_names import c_name, scalar_name


def alias(row: OpDef, *names: str) -> None:
    """Register a row under further names, each with a function, a method and an in-place form."""
    for name in names:
        if name in TABLE:
            raise ValueError(f"operator {name!r} has two rows; give one of them another name")
        public = replace(row.public, method=name if row.public.method else "", dunder=())
        TABLE[name] = replace(row, name=name, public=public)


factory = partial(defop, dims=from_size, public=Public(function=False, factory=True))
"""Decorator for a row that makes a tensor from sizes and numbers."""


def category(array: jax.Array) -> int:
    """`BOOL`, `INTEGER`, `FLOAT` or `COMPLEX`."""
    return from_numpy(array.dtype).category


def require(array: jax.Array, kernel: str, *categories: int) -> None:
    """`DTypeError` in PyTorch's words unless the element type is of one of the categories."""
    if category(array) not in categories:
        raise UnsupportedDTypeError(f"\"{kernel}\" not implemented for '{scalar_name(array)}'")


def refuse_complex(array: jax.Array, text: str) -> None:
    """Raise `UnsupportedDTypeError` with this text for complex numbers."""
    if category(array) == COMPLEX:
        raise UnsupportedDTypeError(text)


def require_scale(name: str, scale: Scalar, scaled: jax.Array) -> None:
    """Raise `DTypeError` where a factor would be truncated in the type that it multiplies, as 0.5 beside integers."""
    if not isinstance(scale, jax.Array):  # left at its default, which is one
        return
    if category(scale) == BOOL and category(scaled) != BOOL:
        raise DTypeError(f"Boolean {name} only supported for Boolean results.")
    if category(scale) >= FLOAT and category(scaled) < FLOAT:
        raise DTypeError(f"For integral input tensors, argument {name} must not be a floating point number.")
    if category(scale) == COMPLEX and category(scaled) != COMPLEX:
        raise DTypeError(f"For non-complex input tensors, argument {name} must not be a complex number.")


def factor(scale: Scalar, scaled: jax.Array) -> jax.Array:
    """A factor for inputs of this type, as an array; `DTypeError` for a complex factor of real inputs."""
    scale = jnp.asarray(scale)
    if category(scale) == COMPLEX and category(scaled) != COMPLEX:
        word = f"{scaled.dtype}_t" if category(scaled) == INTEGER else c_name(scaled)
        raise DTypeError(f"value cannot be converted to type {word} without overflow")
    return scale


def in_float32(function: Callable[..., jax.Array], *arrays: jax.Array) -> jax.Array:
    """Call a function of several steps in the type of its first array.

    16-bit floats are computed in float32 and rounded once, after the last step.
    """
    dtype = arrays[0].dtype
    narrow = category(arrays[0]) == FLOAT and dtype.itemsize < 4
    return function(*(a.astype(jnp.float32 if narrow else dtype) for a in arrays)).astype(dtype)


def in_float64(function: Callable[..., jax.Array], *arrays: jax.Array) -> jax.Array:
    """Call a function whose steps cancel digits in float64, and round once to the type of its first array."""
    return function(*(a.astype(jnp.float64) for a in arrays)).astype(arrays[0].dtype)


@jax.custom_jvp
def quotient(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a / b` for arrays of one type, rounded once.

    XLA multiplies by the reciprocal where it sees that `b` is broadcast or constant. To prevent that, the divisor is
    made to depend on `a`; where `a` is NaN, so is the quotient.
    """
    a, b = jnp.broadcast_arrays(a, b)
    return lax.div(a, jnp.where(a == a, b, jnp.nan) if category(a) == FLOAT else b)


@quotient.defjvp
def _quotient_jvp(primals: Arrays, tangents: Arrays) -> tuple[jax.Array, jax.Array]:
    return quotient(*primals), jvp(jnp.divide, primals, tangents)[1]


def without_slope(result: jax.Array, input: jax.Array, text: str) -> jax.Array:
    """A result without a derivative with respect to the input: asking for it raises `GradientError` with this text."""

    @jax.custom_jvp
    def same(result: jax.Array, input: jax.Array) -> jax.Array:
        del input  # if jax knew that the result is independent of it, it would never ask for the derivative
        return result

    @same.defjvp
    def _refuse(primals: Arrays, tangents: Arrays) -> NoReturn:
        del primals, tangents
        raise GradientError(text)

    return same(result, input)


def documented(body: AnyCallable, name: str, doc: str) -> AnyCallable:
    """Set the name and docstring of a body that is generated from a line of a table."""
    body.__name__ = body.__qualname__ = name
    body.__doc__ = doc
    return body


def function_row(
    name: str,
    function: Callable[[jax.Array], jax.Array],
    doc: str,
    *,
    real: str = "",
    autocast: CastClass | PerDevice = Cast.NONE,
    vjp: AnyCallable | None = None,
    public: Public = PLAIN,
) -> OpDef:
    """A row that maps each element. `real` is the kernel's name in errors, if it takes no complex numbers."""

    def body(input: Array) -> Array:
        if real:
            require(input, real, FLOAT)
        return in_float32(function, input)

    row = defop(
        name,
        dims=pointwise,
        types=Types(promote=Promote.FLOAT, autocast=autocast),
        derivative=Derivative(vjp=vjp),
        public=public,
    )
    return row(documented(body, name, doc))


def unbroadcast(g: jax.Array, like: jax.Array) -> jax.Array:
    """A gradient summed over the dims along which its input was broadcast."""
    lead = g.ndim - like.ndim
    dims = tuple(range(lead)) + tuple(d for d, size in enumerate(like.shape, lead) if size == 1 and g.shape[d] != 1)
    return g.sum(dims).reshape(like.shape) if dims else g
