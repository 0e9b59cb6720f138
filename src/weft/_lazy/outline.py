"""Outlining: a region of a recorded graph becomes one operator.

The operators of the region are computed, differentiated and compiled as before. But they are recorded as one
application, and its derivative starts from the region's inputs. Capturing functions and checkpoints are built on this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weft._base.device import CPU
from weft._lazy.precision import rewrite_barrier
from weft._lazy.signature import Output, Precondition, Signature
from weft._lazy.value import Value, inputs_first

RegionStep = tuple[Output, tuple[int, ...], bool]
"""An output of an application, the numbers of its inputs, and whether gradients stop at it."""

_signatures: dict[Any, Signature] = {}
_MOST_SIGNATURES = 1024


def outline(
    wanted: Sequence[Value], region: Sequence[Value], name: str, *, barrier: bool = False
) -> tuple[Signature, list[Value]]:
    """The signature that computes `wanted` from the inputs of `region`, and these inputs.

    Values recorded elsewhere, leaves and numbers are inputs. Wanted values that are not in the region are returned
    unchanged. With `barrier`, the compiler may not share work between the operator and its derivative.
    """
    inside = {id(value) for value in region if value.array is None}
    numbers: dict[Value, int] = {}
    leaves: list[Value] = []
    leaf_numbers: list[int] = []  # the number of each leaf
    steps: list[RegionStep] = []
    step_numbers: list[int] = []  # the number of each step
    for value in wanted:
        for here in inputs_first(value, lambda x: x not in numbers, lambda x: id(x) in inside):
            if id(here) in inside:
                assert here.origin is not None, "a pending value has an origin"
                steps.append((here.origin, tuple([numbers[x] for x in here.inputs]), _stops(here)))
                step_numbers.append(len(numbers))
            else:
                leaves.append(here)
                leaf_numbers.append(len(numbers))
            numbers[here] = len(numbers)
    avals = tuple(leaf.aval for leaf in leaves)
    results = tuple(numbers[value] for value in wanted)
    key = (name, barrier, avals, tuple(leaf_numbers), tuple(steps), results)
    signature = _signatures.get(key)
    if signature is None:
        if len(_signatures) >= _MOST_SIGNATURES:
            del _signatures[next(iter(_signatures))]
        run = _runner(steps, step_numbers, leaf_numbers, results, barrier)
        device = next((leaf.aval.device for leaf in leaves if not leaf.aval.weak), CPU)
        signature = _signatures[key] = Signature(
            name, run, avals, device=device, precondition=_precondition(steps, step_numbers, leaf_numbers)
        )
    return signature, leaves


def _stops(value: Value) -> bool:
    """Whether gradients stop at this value: it is not on the tape, although an input is."""
    flows = value.tape is not None and not value.tape.leaf
    return not flows and any(x.tape is not None for x in value.inputs)


def has_user_derivatives(region: Sequence[Value]) -> bool:
    """Whether a region has hooks or users' derivatives, which outlining would lose."""
    tapes = (value.tape for value in region)
    return any(t is not None and not (t.leaf or t.freed) and (t.custom or t.hooks) for t in tapes)


def _runner(
    steps: Sequence[RegionStep],
    step_numbers: Sequence[int],
    leaf_numbers: Sequence[int],
    results: Sequence[int],
    barrier: bool,
) -> Callable[..., tuple[jax.Array, ...]]:
    """The region as a function of its leaves."""
    used = {(output.signature, inputs, output.index) for output, inputs, _ in steps}

    def run(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        if barrier:
            arrays = jax.lax.optimization_barrier(arrays)
        entries: dict[int, jax.Array] = dict(zip(leaf_numbers, arrays, strict=True))
        applications: dict[Any, tuple[jax.Array, ...]] = {}
        for (output, inputs, stops), number in zip(steps, step_numbers, strict=True):
            signature = output.signature
            outputs = applications.get((signature, inputs))
            if outputs is None:
                reads_aux = any((signature, inputs, i) in used for i in range(signature.main, len(signature.outputs)))
                body = signature.fn if reads_aux else with_derivative(signature)
                outputs = applications[signature, inputs] = body(*[entries[i] for i in inputs])
            entry = rewrite_barrier(outputs[output.index]) if signature.rounds else outputs[output.index]
            entries[number] = jax.lax.stop_gradient(entry) if stops else entry
        return tuple(entries[n] for n in results)

    return run


def _precondition(
    steps: Sequence[RegionStep], step_numbers: Sequence[int], leaf_numbers: Sequence[int]
) -> Precondition | None:
    """All that must hold in the region."""
    demands = {(o.signature, ins): o.signature.precondition for o, ins, _ in steps if o.signature.precondition}
    if not demands:
        return None
    numbers = tuple(dict.fromkeys([*leaf_numbers, *step_numbers]))
    run = _runner(steps, step_numbers, leaf_numbers, numbers, barrier=False)

    def codes(*arrays: jax.Array) -> list[jax.Array]:
        entries = dict(zip(numbers, run(*arrays), strict=True))
        return [code for (_, ins), demand in demands.items() for code in demand.codes(*[entries[i] for i in ins])]

    return Precondition(codes, [c for demand in demands.values() for c in demand.templates])


def with_derivative(signature: Signature) -> Callable[..., tuple[jax.Array, ...]]:
    """A signature's function with the row's hand-written derivative, for `jax.vjp`."""
    grads = signature.grads
    if grads is None or any(a.dtype.is_complex for a in signature.avals):
        return signature.fn

    @jax.custom_vjp
    def run(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        return signature.fn(*arrays)

    def forward(*arrays: jax.Array) -> tuple[Any, Any]:
        outputs = signature.fn(*arrays)
        return outputs, (arrays, outputs)

    def backward(saved: Any, cotangents: Any) -> tuple[Any, ...]:
        arrays, outputs = saved
        smooth = tuple(
            jnp.zeros_like(o) if g.dtype == jax.dtypes.float0 else g
            for g, o in zip(cotangents[: signature.main], outputs, strict=False)
        )
        gradients = grads(arrays, outputs, smooth)
        return tuple(_cotangent(g, a) for g, a in zip(gradients, arrays, strict=True))

    run.defvjp(forward, backward)
    return run


def _cotangent(grad: jax.Array | None, array: jax.Array) -> Any:
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        return np.zeros(array.shape, jax.dtypes.float0)
    return jnp.zeros_like(array) if grad is None else grad
