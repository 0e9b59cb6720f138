"""Recording: an application becomes values that are computed later."""

from __future__ import annotations

from weft._base.state import Ambient
from weft._lazy import checks, realize
from weft._lazy.infer import Signature
from weft._lazy.value import Value, recorded


def record(
    signature: Signature, inputs: tuple[Value, ...], ambient: Ambient, doubt: checks.Doubt | None = None
) -> tuple[Value, ...]:
    """Record an application; return the values of its main outputs.

    A derivative takes on the doubt of the application that it is the derivative of. Raises where inputs that are at
    hand are bad.
    """
    pending = ambient.pending
    if signature.precondition is not None:
        doubt = checks.begin(signature, inputs, pending)
    values = tuple([recorded(output, inputs) for output in signature.outputs])
    if ambient.grad:
        for x in inputs:
            if x.tape is not None:
                for value, output in zip(values, signature.outputs, strict=True):
                    value.tape = output.taped
                break
    main = values
    if signature.main < len(values):
        main = values[: signature.main]
        main[0].extras = values[signature.main :]
    if signature.doubtful:
        for value in values:
            value.doubt = doubt
    pending.extend(values)
    if len(pending) > pending.limit:
        realize.relieve(pending)
    precondition = signature.precondition
    if precondition is not None and precondition.waits and doubt is not None and ambient.capture is None:
        realize.confirm(doubt.check, at_the_call=True)
    return main
