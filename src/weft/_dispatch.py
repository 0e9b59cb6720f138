"""The one path of every operator call that is not the common one (`_tensor/hot.py` is that path, inlined)."""

from __future__ import annotations

from weft._base.site import user_site
from weft._base.state import Ambient, ambient
from weft._lazy.infer import Call, Signature, signature_of
from weft._lazy.realize import flush, held_by, report
from weft._lazy.record import record
from weft._lazy.value import Tape, Value


def apply(call: Call, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
    """Record `call` on `inputs`; return the values of its outputs. Raises whatever does not fit."""
    avals = tuple([x.aval for x in inputs])
    return apply_signature(call.signatures.get(avals) or signature_of(call, avals), inputs)


def apply_signature(signature: Signature, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
    """Record a signature on inputs of its types; return the values of its outputs."""
    state = ambient()
    values = record(signature, inputs, state)
    if not state.plain:
        _serve_modes(values, state)
    return values


def _serve_modes(values: tuple[Value, ...], state: Ambient) -> None:
    if state.anomaly:
        site = user_site()
        for value in values:
            if value.tape is not None:
                value.tape = Tape(site=site)
    if state.eager and state.capture is None:
        flush(state.pending)
        for value in values[:1]:
            held_by(value)  # raises what its check has found
        report(state.pending)
