"""Casting by autocast: recorded before the application, as operators of their own, so that gradients follow."""

from __future__ import annotations

from weft._base.autocast import PLACES, Autocast
from weft._base.dtype import DType, float32, float64
from weft._base.state import Ambient
from weft._lazy.call import ONE, kinds_of
from weft._lazy.infer import Call, call_of, signature_of
from weft._lazy.record import record
from weft._lazy.value import Value
from weft.errors import AmpError
from weft.ops._table import TABLE, TENSOR_KINDS, Cast, Kind, class_on


def cast_inputs(call: Call, inputs: tuple[Value, ...], ambient: Ambient) -> tuple[Value, ...]:
    """The inputs of a call as its autocast class wants them; the same tuple where nothing is to be cast.

    A call that names the type of its result is left alone.
    """
    op, autocast = call.op, ambient.autocast
    if op.cast is Cast.NONE or _names_type(call):
        return inputs
    tensors = [x for x, kind in zip(inputs, kinds_of(call), strict=True) if kind in TENSOR_KINDS and not x.aval.weak]
    device_type = cast_device(tensors, autocast)
    if not device_type:
        return inputs
    wanted = wanted_type(op.name, class_on(op.cast, device_type), tensors, autocast, device_type)
    if wanted is None:
        return inputs
    chosen = {x: x for x in tensors if is_eligible(x.aval.dtype) and x.aval.dtype is not wanted}
    for x in chosen:
        chosen[x] = cast(x, wanted, ambient)
    return tuple([chosen.get(x, x) for x in inputs]) if chosen else inputs


def _names_type(call: Call) -> bool:
    entries = zip(call.op.params, call.static, strict=True)
    return any(entry is not None and param.kind is Kind.DTYPE for param, entry in entries)


def cast_device(tensors: list[Value], autocast: Autocast) -> str:
    """The type of device by whose classes tensors are cast, or "" where autocast is off for them."""
    if not tensors:
        return ""
    device_type = autocast.as_if or tensors[0].aval.device.type
    return device_type if device_type in autocast.enabled else ""


def wanted_type(name: str, cast: Cast, tensors: list[Value], autocast: Autocast, device_type: str) -> DType | None:
    """The type that a class wants these tensors in, or None for the types that they have."""
    if cast is Cast.LOWER:
        return autocast.dtypes[PLACES[device_type]]
    if cast is Cast.FLOAT32:
        return float32
    if cast is Cast.PROMOTE:
        types = {x.aval.dtype for x in tensors if is_eligible(x.aval.dtype)}
        return float32 if len(types) > 1 else None
    if cast is Cast.BANNED:
        raise AmpError(_ADVICE.get(name, f"{name} is unsafe to autocast"))
    return None


_ADVICE = {
    "binary_cross_entropy": (
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
        "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
        "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
        "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
        "safe to autocast."
    )
}


def is_eligible(dtype: DType) -> bool:
    """Whether autocast casts elements of a type: real floating numbers of less than 64 bits."""
    return dtype.is_floating_point and dtype is not float64


def cast(value: Value, dtype: DType, ambient: Ambient) -> Value:
    """A value in another type. Casts of float32 leaves that collect a gradient are kept for the outermost region.

    What is kept is found by the leaf, and holds for its value: one that was written since is cast anew.
    """
    tape, autocast = value.tape, ambient.autocast
    if not autocast.caches or tape is None or not tape.leaf or value.aval.dtype is not float32 or not ambient.grad:
        return _recorded(value, dtype, ambient)
    key = (tape, dtype)
    kept = autocast.kept.get(key)
    if kept is None or kept[0] is not value:
        kept = autocast.kept[key] = (value, _recorded(value, dtype, ambient))
    return kept[1]


def _recorded(value: Value, dtype: DType, ambient: Ambient) -> Value:
    call = call_of(TABLE["to_dtype"], (ONE, dtype))
    avals = (value.aval,)
    return record(call.signatures.get(avals) or signature_of(call, avals), (value,), ambient)[0]
