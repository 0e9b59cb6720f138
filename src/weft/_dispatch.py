"""The general path of operator calls. `_tensor/fast_path.py` is the same path inlined, for the common call."""

from __future__ import annotations

from weft._base.device import CPU, device
from weft._base.state import ambient
from weft._lazy.autocast import cast_inputs
from weft._lazy.aval import Aval
from weft._lazy.external import computed_at_once, taken_in, view_of
from weft._lazy.infer import Call, signature_of
from weft._lazy.moving import moved_value
from weft._lazy.native import native
from weft._lazy.record import record
from weft._lazy.signature import Signature
from weft._lazy.value import Value
from weft.ops._dims import pointwise


def _apply(call: Call, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
    """Record `call` on `inputs`, cast if autocast is on; returns the values of its outputs."""
    state = ambient()
    if state.autocast.enabled:
        inputs = cast_inputs(call, inputs, state)
    avals = tuple([x.aval for x in inputs])
    signature = call.signatures.get(avals)
    if signature is None:
        # External memory is never an input. What is marked so has no signature either, so the common call does not ask.
        if any(aval.external for aval in avals):
            view = view_of(call, inputs, state)
            if view is not None:
                return (view,)
            return computed_at_once(call, inputs, state) or _apply(call, tuple(map(taken_in, inputs)))
        # Owners are asked here alone: for their types there is no signature, unless one has kept it. Rows that give a
        # value an owner, or take it, are not theirs.
        for aval in avals:
            if aval.owner is not None and call.op.types.result is None:
                return aval.owner.apply(call, inputs)
        if call.op.dims is pointwise and (target := _only_device(avals)) is not None:
            inputs = tuple([moved_value(x, target) if _is_number_on_cpu(x.aval) else x for x in inputs])
            avals = tuple([x.aval for x in inputs])
        signature = signature_of(call, avals)
    return record(signature, inputs, state)


apply = _apply
"""`_apply`, or its twin in the extension, which takes calls with a known signature."""
if native is not None:
    native.bind(apply=_apply)
    apply = native.apply


def _is_number_on_cpu(aval: Aval) -> bool:
    return not aval.shape and not aval.weak and aval.device is CPU


def _only_device(avals: tuple[Aval, ...]) -> device | None:
    """The one other device, where tensors of one number are on the CPU: they may stand beside those of any device."""
    if not any(map(_is_number_on_cpu, avals)):
        return None
    others = {aval.device for aval in avals if not aval.weak and not _is_number_on_cpu(aval)}
    return others.pop() if len(others) == 1 and CPU not in others else None


def apply_signature(signature: Signature, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
    """Record a signature on inputs of its types; returns the values of its outputs."""
    return record(signature, tuple(map(taken_in, inputs)), ambient())
