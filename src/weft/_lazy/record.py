"""Recording: an application becomes values that are computed later."""

from __future__ import annotations

from weft._base.device import META
from weft._base.pending import Pending
from weft._base.site import Noting, user_site
from weft._base.state import NO_CONTEXT, VARIABLE, Ambient
from weft._lazy import checks, flushing, sites
from weft._lazy.aval import marked
from weft._lazy.native import native
from weft._lazy.plan import read_inputs
from weft._lazy.role import Interior
from weft._lazy.signature import Signature
from weft._lazy.value import Shared, Value, recorded
from weft.errors import GradientError


def _record(
    signature: Signature, inputs: tuple[Value, ...], ambient: Ambient, doubt: checks.Doubt | None = None
) -> tuple[Value, ...]:
    """Record an application, and apply the modes; returns the values of its main outputs.

    A derivative takes on the doubt of its application. Raises if inputs in memory are bad.
    """
    outputs, requirement = signature.outputs, signature.requirement
    precondition = None if requirement is None else requirement.precondition
    if precondition is not None:
        doubt = checks.begin(signature, inputs, ambient)
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
    elif main and main[0].role is not None:
        for x in inputs:
            if x.aval.inference and any(inputs[at].aval.inference for at in read_inputs(main[0])):
                raise saved_inference()
    if requirement is not None:
        for value in values:
            value.doubt = doubt
    pending = ambient.pending
    if len(pending) > pending.limit:
        flushing.at_limit(pending)
    if precondition is not None and precondition.waits and doubt is not None and ambient.capture is None:
        doubt.check.confirm(at_the_call=True)
    if ambient.watched:
        _serve_modes(main, inputs, ambient)
    return main


record = _record
"""`_record`, or its twin in the extension, which records where there is neither a mode nor a precondition."""
if native is not None:
    # `_base` does not know the extension, which loads NumPy: what only moves bytes does without it.
    native.bind(Ambient=Ambient, Pending=Pending, context=VARIABLE, NO_CONTEXT=NO_CONTEXT)
    native.bind(record=_record, at_limit=flushing.at_limit)
    record = native.record


def saved_inference() -> GradientError:
    """The error for a derivative that would read a value made in inference mode."""
    return GradientError(
        "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
        "computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it "
        "in autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`."
    )


def _serve_modes(values: tuple[Value, ...], inputs: tuple[Value, ...], ambient: Ambient) -> None:
    if Noting.on or ambient.capture is not None:  # the lines of captured operators cannot be seen later
        sites.note(values)
    for observe in ambient.watchers.observers:
        observe(values)
    if not ambient.inference:
        for level in ambient.watchers.forward:
            level.note(values, inputs)
    if ambient.watchers.anomaly:
        site = user_site()
        for value in values:
            if value.role is not None:
                value.role = Interior(site=site)
    if ambient.watchers.eager and ambient.capture is None:
        flushing.flush(ambient.pending)
        for value in values[: values[0].aval.device is not META]:
            value.read()  # raises its check's failure
        checks.report(ambient.pending)
