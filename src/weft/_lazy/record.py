"""Recording: an application becomes values that are computed later."""

from __future__ import annotations

from weft._base.site import user_site
from weft._base.state import Ambient
from weft._lazy import realize
from weft._lazy.infer import Output, Signature
from weft._lazy.value import Value, tick

_new = object.__new__


def recorded(origin: Output, inputs: tuple[Value, ...]) -> Value:
    """A pending value off every list: an output of an application that is, or will be, recorded."""
    value = _new(Value)
    value.origin = origin
    value.inputs = inputs
    value.aval = origin.aval
    value.array = None
    value.extras = None
    value.num = -1
    value.time = tick()
    value.tape = None
    return value


def record(signature: Signature, inputs: tuple[Value, ...], ambient: Ambient) -> tuple[Value, ...]:
    """Record an application; return the values of its main outputs."""
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
    if signature.check is not None:
        site = user_site()
        for value in values:
            value.site = site
    pending = ambient.pending
    pending.extend(values)
    if len(pending) > pending.limit:
        realize.relieve(pending)
    return main
