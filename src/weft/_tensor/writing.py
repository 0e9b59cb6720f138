"""Writing through view operators: for each of them, the call that puts elements back into what it was taken from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from weft._base.types import AnyArray, AnyCallable, Arg
from weft._lazy.aval import Aval
from weft._lazy.call import ONE
from weft._lazy.infer import Call, call_of
from weft.ops._dims import Factors, PartOf, Sizes
from weft.ops._float8 import is_float8
from weft.ops._jax import linear_transpose
from weft.ops._kinds import Kind, Param
from weft.ops._table import Derivative, OpDef, Types


def writing(call: Call) -> Call:
    """The call that writes through a view call: (base, value, the view's other inputs) -> new base."""
    if call.write is None:
        call.write = call_of(_write_row(call.op), (ONE, ONE, *call.static[1:]))
    return call.write


@lru_cache(maxsize=256)
def _write_row(op: OpDef) -> OpDef:
    rest = [replace(p, text="Shape") if p.text == "OutShape" else p for p in op.params[1:]]  # the result is the base
    params = (Param("base", Kind.ARRAY), Param("value", Kind.ARRAY), *rest)
    assert op.view is not None, "only views are written through"
    body = op.view.write or partial(_write_by_transpose, op.impl)
    return OpDef(
        f"{op.name}_write",
        body,
        params,
        dims=_like_the_base,
        types=Types(arithmetic=op.types.arithmetic, result=None if op.types.result is None else _type_of_the_base),
        derivative=Derivative(saves=True, name="torch::autograd::CopySlices"),
        host=None if op.host is None else partial(_write_on_host, op.host),
    )


def _type_of_the_base(avals: Sequence[Aval], *rest: object) -> Aval:
    del rest
    return avals[0]


def _write_on_host(view: AnyCallable, base: AnyArray, value: AnyArray, *numbers: Arg, **static: Arg) -> AnyArray:
    view(base, *numbers, **static)[...] = value
    return base


def _like_the_base(shapes: Sequence[Sizes], static: Mapping[str, object]) -> Factors:
    """The dims of the base stay; nothing else says anything of them."""
    del static
    letters = [tuple((at, dim) for dim in range(len(shape))) for at, shape in enumerate(shapes)]
    whole = frozenset(letter for dims in letters for letter in dims)
    return Factors((letters[0], *[tuple(map(PartOf, dims)) for dims in letters[1:]]), (letters[0],), whole)


def _write_by_transpose(
    view: AnyCallable, base: jax.Array, value: jax.Array, *rest: object, **static: object
) -> AnyArray:
    """Write through any view operator by its linear transpose, which puts the elements back."""
    if is_float8(base.dtype):  # whose bytes are moved, since one of these types has no zero
        as_bytes = partial(jax.lax.bitcast_convert_type, new_dtype=jnp.uint8)
        written = _write_by_transpose(view, as_bytes(base), as_bytes(value), *rest, **static)
        return jax.lax.bitcast_convert_type(written, base.dtype)
    if not jnp.issubdtype(base.dtype, jnp.inexact):
        wide = base.dtype.itemsize == 8
        as_float, back = _through_bits(base.dtype) if wide else _through_float64(base.dtype)
        return back(_write_by_transpose(view, as_float(base), as_float(value), *rest, **static))

    def seen(x: jax.Array) -> jax.Array:
        return view(x, *rest, **static)

    put_back = linear_transpose(seen, base)
    (mask,) = put_back(jnp.ones_like(value))
    (moved,) = put_back(value)
    return jnp.where(mask != 0, moved, base)


def _through_bits(dtype: np.dtype) -> tuple[AnyCallable, AnyCallable]:
    return partial(jax.lax.bitcast_convert_type, new_dtype=jnp.float64), partial(
        jax.lax.bitcast_convert_type, new_dtype=dtype
    )


def _through_float64(dtype: np.dtype) -> tuple[AnyCallable, AnyCallable]:
    def back(x: jax.Array) -> jax.Array:
        return x.astype(dtype)

    return _as_float64, back


def _as_float64(x: jax.Array) -> jax.Array:
    return x.astype(jnp.float64)
