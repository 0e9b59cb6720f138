"""The general path of operator calls. `_tensor/fast_path.py` is the same path inlined, for the common call."""

from __future__ import annotations

from weft._base.state import ambient
from weft._lazy.autocast import cast_inputs
from weft._lazy.infer import Call, signature_of
from weft._lazy.record import record
from weft._lazy.signature import Signature
from weft._lazy.value import Value


def apply(call: Call, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
    """Record `call` on `inputs`, cast if autocast is on; returns the values of its outputs."""
    state = ambient()
    if state.autocast.enabled:
        inputs = cast_inputs(call, inputs, state)
    avals = tuple([x.aval for x in inputs])
    signature = call.signatures.get(avals)
    if signature is None:
        for aval in avals:
            if aval.sharding is not None:
                return aval.sharding.apply(call, inputs)
        signature = signature_of(call, avals)
    return record(signature, inputs, state)


def apply_signature(signature: Signature, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
    """Record a signature on inputs of its types; returns the values of its outputs."""
    return record(signature, inputs, ambient())
