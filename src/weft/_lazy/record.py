"""Recording: an application becomes values that are computed later."""

from __future__ import annotations

from weft._base.site import user_site
from weft._base.state import Ambient
from weft._lazy import realize
from weft._lazy.infer import Output, Signature
from weft._lazy.value import Shared, Tape, Value, marked, tick
from weft.errors import GradientError

_new = object.__new__


def recorded(origin: Output, inputs: tuple[Value, ...], ambient: Ambient) -> Value:
    """A pending value, on the list and, where it belongs there, on the tape: one output of an application.

    `_tensor/hot.py` has the same statements inlined; a test holds the two together.
    """
    value = _new(Value)
    value.origin = origin
    value.inputs = inputs
    value.aval = origin.aval
    value.array = None
    value.extras = None
    value.num = -1
    value.time = tick()
    value.tape = None
    if ambient.grad:
        for x in inputs:
            if x.tape is not None:
                value.tape = origin.taped
                break
    ambient.pending.append(value)
    return value


def record(signature: Signature, inputs: tuple[Value, ...], ambient: Ambient) -> tuple[Value, ...]:
    """Record an application, and let the modes see it; return the values of its main outputs."""
    outputs = signature.outputs
    if len(outputs) == 1:
        values = main = (recorded(outputs[0], inputs, ambient),)
    else:
        if type(inputs) is not Shared:
            inputs = Shared(inputs)
        values = main = tuple([recorded(output, inputs, ambient) for output in outputs])
        if signature.main < len(values):
            main = values[: signature.main]
            main[0].extras = values[signature.main :]
    if ambient.inference:
        for value in values:
            value.aval = marked(value.aval, True)
    elif main and main[0].tape is not None:
        for x in inputs:
            if x.aval.inference and any(inputs[at].aval.inference for at in realize.read_inputs(main[0])):
                raise saved_inference()
    if signature.check is not None:
        site = user_site()
        for value in values:
            value.site = site
    pending = ambient.pending
    if len(pending) > pending.limit:
        realize.relieve(pending)
    if ambient.anomaly or ambient.eager:
        _serve_modes(main, ambient)
    return main


def saved_inference() -> GradientError:
    """The error for a derivative that would read what was made in inference mode."""
    return GradientError(
        "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
        "computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it "
        "in autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`."
    )


def _serve_modes(values: tuple[Value, ...], ambient: Ambient) -> None:
    if ambient.anomaly:
        site = user_site()
        for value in values:
            if value.tape is not None:
                value.tape = Tape(site=site)
    if ambient.eager and ambient.capture is None:
        realize.flush(ambient.pending)
        realize.check_flags(ambient.pending.flags)
