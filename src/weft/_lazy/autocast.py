"""Casting by autocast: recorded before the application, as operators of their own, so that gradients follow."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from weft._base.autocast import DTYPE_INDEX, Autocast
from weft._base.dtype import FLOAT, DType, float32, float64
from weft._base.state import Ambient
from weft._lazy.call import ONE, kinds_of
from weft._lazy.external import taken_in
from weft._lazy.infer import Call, call_of, signature_of
from weft._lazy.record import record
from weft._lazy.role import Leaf
from weft._lazy.value import Value
from weft.errors import AmpError
from weft.ops._autocast import Banned, Cast, CastClass, class_on
from weft.ops._kinds import TENSOR_KINDS, Kind
from weft.ops._table import TABLE


def cast_inputs(call: Call, inputs: tuple[Value, ...], ambient: Ambient) -> tuple[Value, ...]:
    """The inputs of a call, cast according to its autocast class; the same tuple if nothing is to be cast.

    A call with an explicit type of the result is never cast.
    """
    on_cpu, on_accelerator, places = _classes(call)
    tensors = [inputs[at] for at in places]
    device_type = cast_device(tensors, ambient.autocast)
    if not device_type:
        return inputs
    chosen_class = on_cpu if device_type == "cpu" else on_accelerator
    if chosen_class is _NONE:
        return inputs
    wanted = wanted_type(chosen_class, tensors, ambient.autocast, device_type)
    if wanted is None:
        return inputs
    casts = {x: x for x in tensors if x.aval.dtype is not wanted and not x.aval.weak and is_eligible(x.aval.dtype)}
    if not casts:
        return inputs
    for x in casts:
        casts[x] = cast(x, wanted, ambient)
    return tuple([casts.get(x, x) for x in inputs])


_NONE, _LOWER, _FLOAT32, _PROMOTE = Cast.NONE, Cast.LOWER, Cast.FLOAT32, Cast.PROMOTE  # looking up members is slow


@lru_cache(maxsize=16_384)  # key: the call
def _classes(call: Call) -> tuple[CastClass, CastClass, tuple[int, ...]]:
    """The autocast classes of a call on the CPU and on accelerators, and which of its inputs are tensors."""
    places = tuple(at for at, kind in enumerate(kinds_of(call)) if kind in TENSOR_KINDS)
    entries = zip(call.op.params, call.static, strict=True)
    if any(entry is not None and param.kind is Kind.DTYPE for param, entry in entries):
        return _NONE, _NONE, places
    return class_on(call.op.types.autocast, "cpu"), class_on(call.op.types.autocast, "cuda"), places


def cast_device(tensors: Sequence[Value], autocast: Autocast) -> str:
    """The device type whose classes apply to these inputs, or "" if autocast is off for it. Numbers have none."""
    for x in tensors:
        if not x.aval.weak:
            device_type = autocast.as_if or x.aval.device.type
            return device_type if device_type in autocast.enabled else ""
    return ""


def wanted_type(cast: CastClass, tensors: Sequence[Value], autocast: Autocast, device_type: str) -> DType | None:
    """The type to which a class casts these inputs, or None if they keep theirs. Raises if the class refuses."""
    if cast is _LOWER:
        return autocast.dtypes[DTYPE_INDEX[device_type]]
    if cast is _FLOAT32:
        return float32
    if cast is _PROMOTE:
        types = {x.aval.dtype for x in tensors if not x.aval.weak and is_eligible(x.aval.dtype)}
        return float32 if len(types) > 1 else None
    if isinstance(cast, Banned):
        raise AmpError(cast.advice)
    return cast if isinstance(cast, DType) else None


def is_eligible(dtype: DType) -> bool:
    """Whether autocast casts elements of a type: real floating numbers of less than 64 bits."""
    return dtype.category == FLOAT and dtype is not float64


def cast(value: Value, dtype: DType, ambient: Ambient) -> Value:
    """A value in another type. Casts of float32 leaves with gradients are kept until the outermost region ends.

    They are found by the leaf's role and used for the same value only: a leaf that was written is cast again.
    """
    value = taken_in(value)
    role, autocast = value.role, ambient.autocast
    if not (autocast.caches and isinstance(role, Leaf) and value.aval.dtype is float32 and ambient.grad):
        return _recorded(value, dtype, ambient)
    key = (role, dtype)
    kept = autocast.kept.get(key)
    if kept is None or kept[0] is not value:
        kept = autocast.kept[key] = (value, _recorded(value, dtype, ambient))
    return kept[1]


def _recorded(value: Value, dtype: DType, ambient: Ambient) -> Value:
    call = _to_dtype(dtype)
    avals = (value.aval,)
    if value.aval.owner is not None:
        return value.aval.owner.apply(call, (value,))[0]
    return record(call.signatures.get(avals) or signature_of(call, avals), (value,), ambient)[0]


@lru_cache(maxsize=64)  # key: the type
def _to_dtype(dtype: DType) -> Call:
    return call_of(TABLE["to_dtype"], (ONE, dtype))
