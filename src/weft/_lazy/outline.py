"""Outlining: a region of a recorded graph becomes one operator.

The operators of the region are computed, differentiated and compiled as before. But they are recorded as one
application, and its derivative starts from the region's inputs. Capturing functions and checkpoints are built on this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from weft._base.device import CPU
from weft._base.types import AnyArray, Arg, Args
from weft._lazy.explain import inferring
from weft._lazy.form import Application, Form, compiled_body
from weft._lazy.precondition import Precondition
from weft._lazy.role import Freed, Interior
from weft._lazy.signature import Arrays, Signature, operators_of
from weft._lazy.sites import site_of
from weft._lazy.value import Shared, Value, inputs_first
from weft.ops._jax import custom_vjp, optimization_barrier, vjp

# no cell: a cache, keyed by all that its entries depend on
_signatures: dict[Hashable, Signature] = {}
_MOST_SIGNATURES = 1024


def outline(
    wanted: Sequence[Value], region: Sequence[Value], name: str, *, barrier: bool = False, saved: Sequence[Value] = ()
) -> tuple[Signature, list[Value]]:
    """The signature that computes `wanted` from the inputs of `region`, and these inputs.

    Values recorded elsewhere, leaves and numbers are inputs. Wanted values that are not in the region are returned
    unchanged. With `barrier`, the compiler may not share work between the operator and its derivative. The values
    `saved` of the region are auxiliary outputs, which the derivative reads instead of computing them again.
    """
    make, leaves = outline_later(wanted, region, name, barrier=barrier, saved=saved)
    return make(), leaves


def outline_later(
    wanted: Sequence[Value], region: Sequence[Value], name: str, *, barrier: bool = False, saved: Sequence[Value] = ()
) -> tuple[Callable[[], Signature], list[Value]]:
    """As `outline`, with a function that makes the signature, which takes long, once it is needed."""
    inside = {id(value) for value in region if value.is_pending}
    saved = [value for value in saved if id(value) in inside]
    form, numbers, leaves = form_of([*wanted, *saved], lambda x: id(x) in inside)
    avals = tuple(leaf.aval for leaf in leaves)
    stops = [number for value, number in numbers.items() if id(value) in inside and _stops(value)]
    names = tuple([value.aval.names for value in wanted])
    key = (name, barrier, avals, form, tuple(stops), names, len(saved))
    by_number = list(numbers)
    sites = tuple([site_of(by_number[values[0][0]]) for _, _, values in form.applications])
    return partial(_signature_of, key, sites), leaves


@inferring
def _signature_of(key: Arg, sites: tuple[str | None, ...]) -> Signature:
    """The one signature with this key."""
    signature = _signatures.get(key)
    if signature is None:
        if len(_signatures) >= _MOST_SIGNATURES:
            del _signatures[next(iter(_signatures))]
        name, barrier, avals, form, stops, names, aux = key
        parts = tuple([signature for signature, _, _ in form.applications])
        device = next((aval.device for aval in avals if not aval.weak), CPU)
        signature = _signatures[key] = Signature(
            name,
            _function(form, _body, stops, barrier),
            avals,
            device=device,
            aux=aux,
            grads=_Gradients(form, stops, barrier, len(names)) if aux else None,
            precondition=_precondition(form, stops),
            names=names,
            native=_function(form, compiled_body, stops, barrier) if operators_of(parts)[1] else None,
            parts=parts,
            sites=sites,
        )
    return signature


def form_of(wanted: Sequence[Value], inside: Callable[[Value], bool]) -> tuple[Form, dict[Value, int], list[Value]]:
    """The form that computes `wanted` by the applications of the values `inside`; their numbers; and its leaves."""
    numbers: dict[Value, int] = {}
    leaves: list[Value] = []
    applications: dict[tuple[Signature, tuple[int, ...]], list[tuple[int, int]]] = {}
    for value in wanted:
        for here in inputs_first(value, lambda x: x not in numbers, inside):
            if inside(here):
                assert here.origin is not None, "a pending value has an origin"
                key = here.origin.signature, tuple([numbers[x] for x in here.inputs])
                applications.setdefault(key, []).append((len(numbers), here.origin.index))
            else:
                leaves.append(here)
            numbers[here] = len(numbers)
    form = Form(
        tuple([(*key, tuple(values)) for key, values in applications.items()]),
        tuple([numbers[leaf] for leaf in leaves]),
        tuple([numbers[value] for value in wanted]),
    )
    return form, numbers, leaves


def _stops(value: Value) -> bool:
    """Whether gradients stop at this value: it is not on the tape, although an input is."""
    flows = isinstance(value.role, Interior)
    return not flows and any(x.role is not None for x in value.inputs)


def has_user_derivatives(region: Sequence[Value]) -> bool:
    """Whether a region has hooks or users' derivatives, which outlining would lose."""
    roles = (value.role for value in region)
    own = any(isinstance(t, Interior) and not isinstance(t, Freed) and (t.custom or t.hooks) for t in roles)
    return own or any(type(value.inputs) is Shared and value.inputs.node is not None for value in region)


def _function(
    form: Form, body: Callable[[Application], Callable[..., Arrays]], stops: Collection[int], barrier: bool
) -> Callable[..., Arrays]:
    """The region as a function of its leaves."""
    function = form.function(body, stops)

    def run(*arrays: jax.Array) -> Arrays:
        return tuple(function(*(optimization_barrier(arrays) if barrier else arrays)))

    return run


class _Gradients:
    """The derivative of a region, of which the values after the first `main` ones were saved."""

    def __init__(self, form: Form, stops: Collection[int], barrier: bool, main: int) -> None:
        self._function = form._replace(wanted=form.wanted[:main]).function(_body, stops)
        self._saved = form.wanted[main:]
        self._barrier = barrier
        self._main = main

    def __call__(
        self, inputs: Sequence[jax.Array], outputs: Sequence[jax.Array], cotangents: Sequence[jax.Array]
    ) -> list[jax.Array | None]:
        stored = dict(zip(self._saved, outputs[self._main :], strict=True))
        smooth = [i for i, x in enumerate(inputs) if jnp.issubdtype(x.dtype, jnp.inexact)]

        def region(*wanted: jax.Array) -> list[jax.Array]:
            full = list(inputs)
            for i, x in zip(smooth, wanted, strict=True):
                full[i] = x
            return self._function(*(optimization_barrier(tuple(full)) if self._barrier else full), stored=stored)

        results, pull = vjp(region, *[inputs[i] for i in smooth])
        floating = [
            g if jnp.issubdtype(y.dtype, jnp.inexact) else np.zeros(y.shape, jax.dtypes.float0)
            for g, y in zip(cotangents, results, strict=True)
        ]
        by_input = dict(zip(smooth, pull(floating), strict=True))
        return [by_input.get(i) for i in range(len(inputs))]


def _body(application: Application) -> Callable[..., Arrays]:
    """What computes an application, with the row's derivative unless outputs that only that reads are used."""
    signature, _, values = application
    return signature.fn if any(index >= signature.main for _, index in values) else with_derivative(signature)


def _precondition(form: Form, stops: Collection[int]) -> Precondition | None:
    """All that must hold in the region."""
    demands = [(inputs, s.precondition) for s, inputs, _ in form.applications if s.precondition is not None]
    if not demands:
        return None
    numbers = (*form.leaves, *[number for _, _, values in form.applications for number, _ in values])
    function = _function(form._replace(wanted=numbers), _body, stops, barrier=False)

    def codes(*arrays: jax.Array) -> list[jax.Array]:
        entries = dict(zip(numbers, function(*arrays), strict=True))
        return [code for inputs, demand in demands for code in demand.codes(*[entries[i] for i in inputs])]

    return Precondition(codes, [template for _, demand in demands for template in demand.templates])


def with_derivative(signature: Signature) -> Callable[..., Arrays]:
    """A signature's function with the row's hand-written derivative, for `jax.vjp`."""
    grads = signature.derivatives.grads
    if grads is None or any(a.dtype.is_complex for a in signature.avals):
        return signature.fn

    @custom_vjp
    def run(*arrays: jax.Array) -> Arrays:
        return signature.fn(*arrays)

    def forward(*arrays: jax.Array) -> tuple[Arg, Arg]:
        outputs = signature.fn(*arrays)
        return outputs, (arrays, outputs)

    def backward(saved: Arg, cotangents: Arg) -> Args:
        arrays, outputs = saved
        smooth = tuple(
            jnp.zeros_like(o) if g.dtype == jax.dtypes.float0 else g
            for g, o in zip(cotangents[: signature.main], outputs, strict=False)
        )
        gradients = grads(arrays, outputs, smooth)
        return tuple(_cotangent(g, a) for g, a in zip(gradients, arrays, strict=True))

    run.defvjp(forward, backward)
    return run


def _cotangent(grad: jax.Array | None, array: jax.Array) -> AnyArray:
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        return np.zeros(array.shape, jax.dtypes.float0)
    return jnp.zeros_like(array) if grad is None else grad
