"""Rows that serve a tensor's storage: aliases, copies, and writes that bypass the tape."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from weft.errors import ShapeError
from weft.ops._dims import Factors, Sizes, given_names, pointwise
from weft.ops._float8 import converted
from weft.ops._kinds import Array, Arrays
from weft.ops._reduce import is_complex
from weft.ops._strides import same
from weft.ops._table import INTERNAL, NO_ARITHMETIC, NO_DERIVATIVE, Derivative, Shards, View, defop
from weft.ops._type_names import scalar_name
from weft.ops.shape import expanded


@defop(public=INTERNAL, view=View(layout=same), dims=pointwise, shards=Shards(linear="all"))
def alias(input: Array) -> Array:
    """The same elements, as a view."""
    return input


@defop(public=INTERNAL, view=View(layout=same), derivative=NO_DERIVATIVE, dims=pointwise, shards=Shards(linear="all"))
def detach(input: Array) -> Array:
    """The same elements, outside the tape."""
    return input


@defop(public=INTERNAL, view=View(layout=same), dims=given_names, derivative=Derivative(name="Alias"))
def renamed(input: Array, names: tuple[str | None, ...]) -> Array:
    """The same elements, as a view whose dims have these names."""
    del names
    return input


@jax.custom_jvp
def _complex_carried(old: Array, new: Array) -> Array:
    """`carry` of complex numbers, for which derivatives of rows are those that jax makes of their bodies."""
    del old
    return new


@_complex_carried.defjvp
def _complex_carried_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    return primals[1], tangents[0]


def _carry_vjp(g: Array) -> tuple[Array, None]:
    return g, None


@defop(
    types=NO_ARITHMETIC, derivative=Derivative(vjp=_carry_vjp, name="CopyBackwards"), public=INTERNAL, dims=pointwise
)
def carry(old: Array, new: Array) -> Array:
    """`new`, whose gradient goes to `old`. For data that is replaced without recording on the tape."""
    return _complex_carried(old, new) if is_complex(new.dtype) else new


@defop(types=NO_ARITHMETIC, derivative=Derivative(name="CopyBackwards"), public=INTERNAL, dims=pointwise)
def copy(input: Array, src: Array) -> Array:
    """`src` cast to the type and expanded to the shape of `input`."""
    if len(src.shape) > len(input.shape):
        raise ShapeError(
            f"expand(torch.{scalar_name(src)}Tensor{{{list(src.shape)}}}, size={list(input.shape)}): the number of "
            f"sizes provided ({input.ndim}) must be greater or equal to the number of dimensions in the tensor "
            f"({src.ndim})"
        )
    if jnp.iscomplexobj(src) and not jnp.iscomplexobj(input):
        src = src != 0 if input.dtype == jnp.bool_ else src.real
    return jnp.broadcast_to(converted(src, input.dtype), expanded(src, input.shape))


def _each(shapes: Sequence[Sizes]) -> Factors:
    letters = tuple(tuple((at, dim) for dim in range(len(shape))) for at, shape in enumerate(shapes))
    return Factors(letters, letters, separate=True)


@defop(types=NO_ARITHMETIC, public=INTERNAL, dims=_each)
def pass_through(tensors: Arrays) -> tuple[Array, ...]:
    """The same tensors, in one application."""
    return tuple(tensors)
