"""What a call computes: the row's functions over flat arrays, for inputs of given types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from weft._base import state
from weft._base.dtype import DType, bool_, float32, result_type
from weft._base.types import AnyArray, AnyCallable, Arg, Kwargs
from weft._lazy.aval import Aval
from weft._lazy.call import BoundOp, Exact, PartOfDraw, kinds_of, plain
from weft._lazy.precision import is_half, widened
from weft._lazy.refusal import refusing
from weft._lazy.signature import Arrays
from weft.errors import GradientError
from weft.ops._draws import key_of_part
from weft.ops._float8 import converted
from weft.ops._kinds import TENSOR_KINDS, Kind, Many
from weft.ops._native import serving
from weft.ops._replicas import result_types
from weft.ops._table import Arithmetic, Promote

Casts = tuple[Any, ...]
"""The dtypes to which an input is cast, one after the other."""

Unflattener = Callable[[Sequence[jax.Array]], tuple[list[Any], dict[str, Any]]]


class Body(NamedTuple):
    """`fn` and `grads` as in `Signature`; `unflatten` arranges flat inputs as the row's functions take them."""

    fn: Callable[..., Arrays]
    grads: Callable[..., list[jax.Array | None]] | None
    unflatten: Unflattener


def body_of(
    call: BoundOp,
    avals: tuple[Aval, ...],
    structs: Sequence[jax.ShapeDtypeStruct],
    types: Sequence[object] | None = None,
) -> Body:
    """The functions of a call on inputs of these types with the sizes of `structs`; `types` of results, if known."""
    op = call.op
    casts = _casts(call, avals)
    wide = _wide_casts(call, avals, casts)
    unflatten = _unflattener(call, casts)
    fn = _body(op.impl, unflatten)
    if wide is not None:  # what the body refuses, and the types of its results, follow from the inputs' own types
        if types is None:
            types = [result.dtype for result in result_types(refusing(op, fn), *structs)]
        call = _wide_call(call, avals)
        fn = _rounded(_body(op.impl, _unflattener(call, wide)), types[: len(types) - op.derivative.aux])
    grads = (
        _hand_written(call, op.derivative.vjp, _unflattener(call, wide or casts), wide is not None)
        if op.derivative.vjp
        else None
    )
    return Body(fn, grads, unflatten)


def _wide_call(call: BoundOp, avals: tuple[Aval, ...]) -> BoundOp:
    """A call whose body gets 16-bit floats in float32: so where their type was asked for, it computes float32, too."""
    halves = {a.dtype for a in avals if is_half(a.dtype.numpy)}
    static = [
        float32 if param.kind is Kind.DTYPE and entry in halves else entry
        for param, entry in zip(call.op.params, call.static, strict=True)
    ]
    return BoundOp(call.op, tuple(static), call.device)


def host_body(call: BoundOp) -> AnyCallable | None:
    """The row's function on NumPy arrays with a call's static arguments, or None if it has none."""
    host = call.op.host
    if host is None:
        return None
    entries = zip(call.op.params, call.static, strict=True)
    return partial(host, **{param.name: plain(entry) for param, entry in entries if not isinstance(entry, Many)})


class NativeBody(NamedTuple):
    """`fn` and `grads` as in `Body`, for compiled programs."""

    fn: Callable[..., Arrays]
    grads: Callable[..., list[jax.Array | None]] | None


def native_body(
    call: BoundOp, avals: tuple[Aval, ...], structs: Sequence[jax.ShapeDtypeStruct], device_type: str
) -> NativeBody | None:
    """The native functions of a call on inputs of these types; None if no native body serves it."""
    casts = _casts(call, avals)
    types = [dtypes[-1] if dtypes else s.dtype for s, dtypes in zip(structs, casts, strict=True)]
    operands = [jax.ShapeDtypeStruct(s.shape, dtype) for s, dtype in zip(structs, types, strict=True)]
    native = serving(call.op.native, device_type, *_arguments(call, operands))
    if native is None:
        return None
    unflatten = _unflattener(call, casts)
    grads = None if native.vjp is None else _hand_written(call, native.vjp, unflatten, wide=False)
    return NativeBody(_body(native.impl, unflatten), grads)


def _unflattener(call: BoundOp, casts: Sequence[Casts]) -> Unflattener:
    """A function that casts flat inputs and arranges them as the body takes them."""

    def unflatten(arrays: Sequence[jax.Array]) -> tuple[list[Arg], Kwargs]:
        return _arguments(call, [reduce(_cast, dtypes, a) for a, dtypes in zip(arrays, casts, strict=True)])

    return unflatten


def _body(impl: AnyCallable, unflatten: Unflattener) -> Callable[..., Arrays]:
    """A row's body over flat inputs."""

    def fn(*arrays: jax.Array) -> Arrays:
        args, kwargs = unflatten(arrays)
        out = impl(*args, **kwargs)
        return tuple(entries_of(out))

    return fn


def _rounded(body: Callable[..., Arrays], types: Sequence[object]) -> Callable[..., Arrays]:
    """The body with its main results cast to these types; auxiliary results are only for the derivative."""

    def fn(*arrays: jax.Array) -> Arrays:
        results = body(*arrays)
        return (*map(_cast, results, types), *results[len(types) :])

    return fn


def _hand_written(
    call: BoundOp, vjp: AnyCallable, unflatten: Unflattener, wide: bool
) -> Callable[..., list[jax.Array | None]]:
    """A written derivative, over flat inputs; if `wide`, it gets 16-bit floats in float32, as the body does."""
    op = call.op

    def grads(arrays: Arrays, outputs: Arrays, cotangents: Arrays) -> list[jax.Array | None]:
        args, kwargs = unflatten(arrays)
        if wide:
            outputs, cotangents = (tuple(map(widened, group)) for group in (outputs, cotangents))
        g = cotangents[0] if len(cotangents) == 1 else cotangents
        out = outputs[0] if len(outputs) == 1 else outputs
        gradients = vjp(g, out, *args, **kwargs)
        pending = list(entries_of(gradients))
        flat: list[jax.Array | None] = []
        for param, entry in zip(op.params, call.static, strict=True):
            count = entry.count if isinstance(entry, Many) else 0
            if param.kind not in TENSOR_KINDS:
                flat.extend([None] * count)
                continue
            grad = pending.pop(0)
            if param.kind is Kind.ARRAYS:
                flat.extend(grad)
            elif count:
                flat.append(grad)
        return [None if g is None else _fitted(op.name, g, a) for g, a in zip(flat, arrays, strict=True)]

    return grads


def _fitted(op: str, grad: jax.Array, array: jax.Array) -> jax.Array:
    """A gradient cast to the type of its input; `GradientError` if the shapes differ."""
    if grad.shape != array.shape:
        raise GradientError(
            f"{op}: its backward returned a gradient of shape {list(grad.shape)} for an argument of shape "
            f"{list(array.shape)}"
        )
    return _cast(grad, array.dtype)


def _arguments(call: BoundOp, arrays: Sequence[AnyArray]) -> tuple[list[Arg], Kwargs]:
    """Flat inputs and static entries, arranged as the body takes them; NumPy arrays include no random key."""
    rest = iter(arrays)
    args: list[Arg] = []
    kwargs: Kwargs = {}
    for param, entry in zip(call.op.params, call.static, strict=True):
        if not isinstance(entry, Many):
            value = entry.value if isinstance(entry, Exact) else entry
        elif param.kind is Kind.ARRAYS:
            value = tuple(next(rest) for _ in range(entry.count))
        elif param.kind is Kind.KEY:
            value = _key(entry, [next(rest) for _ in range(entry.count)])
        else:
            value = next(rest)
        if param.keyword_only:
            kwargs[param.name] = value
        else:
            args.append(value)
    return args, kwargs


def _key(entry: Many, numbers: Sequence[AnyArray]) -> jax.Array | None:
    """The random key for a draw; None where the numbers are NumPy's, or where structs stand for them."""
    seed, offset, *first = numbers
    if isinstance(seed, (np.ndarray, jax.ShapeDtypeStruct)):
        return None
    key = jax.random.fold_in(jax.random.key(seed), offset)
    return key_of_part(key, first[0], entry.sizes) if isinstance(entry, PartOfDraw) else key


def _cast(array: jax.Array, dtype: Arg) -> jax.Array:
    if array.dtype == dtype:
        return array
    if jnp.issubdtype(array.dtype, jnp.complexfloating) and not jnp.issubdtype(dtype, jnp.complexfloating):
        array = array.real
    return converted(array, dtype)


def entries_of(value: object) -> Sequence[Arg]:
    """The entries of a tuple or a list; anything else is the only entry."""
    return cast("Sequence[Any]", value) if isinstance(value, (tuple, list)) else (value,)


def operands_of(call: BoundOp, avals: tuple[Aval, ...]) -> list[Aval]:
    """The types of the inputs that are tensors."""
    return [a for a, kind in zip(avals, kinds_of(call), strict=True) if kind in TENSOR_KINDS]


def _casts(call: BoundOp, avals: tuple[Aval, ...]) -> list[Casts]:
    """The dtypes to which each input is cast before the body."""
    target: DType | None = None
    kinds = kinds_of(call)
    taking_part = [a for a, k in zip(avals, kinds, strict=True) if k in TENSOR_KINDS]
    if call.op.types.promote is not Promote.NONE and taking_part:
        default = state.default_dtype()
        target = result_type(tuple((a.dtype, len(a.shape), a.weak) for a in taking_part), default)
        if call.op.types.promote is Promote.FLOAT and not target.is_differentiable:
            target = default
    if target is None:
        return [()] * len(avals)
    stays = bool_ if target.is_float8 else None  # a condition, since one of these types has no zero
    return [
        (target.numpy,) if k in TENSOR_KINDS and a.dtype is not stays else () for a, k in zip(avals, kinds, strict=True)
    ]


def _wide_casts(call: BoundOp, avals: tuple[Aval, ...], casts: Sequence[Casts]) -> list[Casts] | None:
    """The casts for a body that computes 16-bit floats in float32; None if no input has such a type.

    Where types are promoted, Python numbers are rounded to the type of the tensors, unless `exact_numbers`.
    """
    kinds = kinds_of(call)
    types = [dtypes[-1] if dtypes else a.dtype.numpy for a, dtypes in zip(avals, casts, strict=True)]
    halves = [t for t, kind in zip(types, kinds, strict=True) if kind in TENSOR_KINDS and is_half(t)]
    if call.op.types.arithmetic is not Arithmetic.WIDE or not halves:
        return None
    wide: list[Casts] = []
    for at, (aval, kind, dtype, dtypes) in enumerate(zip(avals, kinds, types, casts, strict=True)):
        exact = call.op.types.exact_numbers and not aval.shape and (aval.weak or at > 0)
        if kind in TENSOR_KINDS and is_half(dtype):
            wide.append((jnp.float32,) if exact else (dtype, jnp.float32))
        elif kind is Kind.SCALAR and call.op.types.promote is not Promote.NONE and not exact:
            wide.append((halves[0], jnp.float32))
        else:
            wide.append(dtypes)
    return wide
