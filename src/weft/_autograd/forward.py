"""Forward mode: tangents go along the recorded graph, from some of its values to values that depend on them.

The tape is the graph of what has been recorded, so this direction needs no record of its own. The pushforward of a
signature is a signature, as its derivative is. Where that is written by hand (in the row, or as a `jax.custom_vjp` in
its body), it is the transpose, so that both directions agree at kinks; else it is `jax.jvp` of the body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp

from weft._autograd.engine import output_of
from weft._autograd.graph import leads_to, second_backward_error
from weft._autograd.levels import Links
from weft._base.state import Ambient, ambient, using
from weft._base.timeline import Phase, spanned
from weft._lazy.record import record
from weft._lazy.role import Interior
from weft._lazy.signature import Arrays, Requirement, Signature, structs_of
from weft._lazy.trace import restricted, traced, with_unread
from weft._lazy.value import Shared, Value, inputs_first
from weft.errors import GradientError
from weft.ops._jax import equations_of, jvp, vjp

Positions = tuple[int, ...]
_NO_LINKS: Links = MappingProxyType({})


def pushed_forward(
    outputs: Sequence[Value], tangents: MutableMapping[Value, Value | None], links: Links = _NO_LINKS
) -> list[Value | None]:
    """The tangents of `outputs`, given those of values on which they depend; None without any.

    Tangents go along the tape, and along `links`, and do not pass values whose tangent is given as None. `tangents`
    grows by those of all values between.
    `RuntimeError` if a backward pass has freed what is there, or it has a user's derivative without a forward mode.
    """
    state = ambient()
    with using(grad=False):
        off_tape = ambient()
    for inputs, members in _applications(outputs, tangents, links):
        active = tuple([i for i, x in enumerate(inputs) if tangents.get(x) is not None])
        if active:
            _push(members, inputs, active, tangents, off_tape if members[0].role is None else state)
    return [tangents.get(output) for output in outputs]


def _applications(
    outputs: Sequence[Value], tangents: Mapping[Value, Value | None], links: Links
) -> Iterator[tuple[tuple[Value, ...], list[Value]]]:
    """What was recorded between values with known tangents and `outputs`, inputs first: the inputs and outputs."""
    times = {value.time for value, tangent in tangents.items() if tangent is not None}
    earliest = min(times, default=0)
    seen = set(tangents)

    def enters(value: Value) -> bool:
        role = value.role
        on_tape = isinstance(role, Interior)
        return value not in seen and (on_tape or value in links) and value.time > earliest

    def inputs_of(value: Value) -> tuple[Value, ...]:
        return links.get(value) or value.inputs

    families: dict[int, tuple[tuple[Value, ...], list[Value]]] = {}
    for output in outputs:
        for value in inputs_first(output, enters, lambda _: True, inputs_of):
            seen.add(value)
            inputs = inputs_of(value)
            if not inputs:  # a backward pass has freed it
                if leads_to(value, times.__contains__):
                    raise second_backward_error()
                continue
            families.setdefault(id(inputs) if type(inputs) is Shared else id(value), (inputs, []))[1].append(value)
    yield from families.values()


def _push(
    members: list[Value],
    inputs: tuple[Value, ...],
    active: Positions,
    tangents: MutableMapping[Value, Value | None],
    state: Ambient,
) -> None:
    """Record the tangents of an application's outputs `members`, given those of its inputs at `active`."""
    head = members[0]
    assert head.origin is not None, "only applications are inside of the tape"
    if isinstance(head.role, Interior) and head.role.custom is not None:
        _push_by_user(head.role, members, inputs, tangents)
        return
    directions = [x for x in map(tangents.get, inputs) if x is not None]
    signature = head.origin.signature
    pushforward = pushforward_of(signature, active, tuple([x.origin.index for x in members if x.origin is not None]))
    operands = [inputs[i] for i in pushforward.inputs]
    operands += [output_of(members, i, state, inputs) for i in pushforward.outputs]
    operands += [directions[i] for i in pushforward.tangents]
    doubt = getattr(head, "doubt", None) if signature.requirement else None
    tangents.update(zip(members, record(pushforward.signature, tuple(operands), state, doubt), strict=True))


def _push_by_user(
    role: Interior, members: list[Value], inputs: tuple[Value, ...], tangents: MutableMapping[Value, Value | None]
) -> None:
    """The same by a user's derivative; `RuntimeError` if that has no forward mode."""
    if role.forward is None:
        raise GradientError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )
    results = role.forward([tangents.get(x) for x in inputs])
    tangents.update({x: results[x.origin.index] for x in members if x.origin is not None})


class Pushforward(NamedTuple):
    """Tangents of some outputs of a signature, from those of some of its inputs.

    signature   computes them, from the operands in `inputs`, `outputs`, `tangents`
    inputs, outputs, tangents   positions of the operands that it reads, among all of that kind
    """

    signature: Signature
    inputs: Positions
    outputs: Positions
    tangents: Positions


def pushforward_of(signature: Signature, active: Positions, wanted: Positions) -> Pushforward:
    """The tangents of the outputs at `wanted`, from those of the inputs at `active`."""
    key = ("pushforward", active, wanted)
    result = signature.derivatives.cache.get(key)
    if result is None:
        result = signature.derivatives.cache.setdefault(key, _pushforward(signature, active, wanted))
    return result


def _name(signature: Signature, *_: object) -> str:
    return f"tangents of {signature.name}"


@spanned(Phase.INFERENCE, _name)
def _pushforward(signature: Signature, active: Positions, wanted: Positions) -> Pushforward:
    avals = [*signature.avals, *(o.aval for o in signature.outputs), *(signature.avals[i] for i in active)]
    n, m, structs = len(signature.avals), len(signature.outputs), structs_of(avals)

    def function(*arrays: jax.Array) -> Arrays:
        inputs, outputs, tangents = arrays[:n], arrays[n : n + m], arrays[n + m :]
        return tuple(_tangents(signature, active, wanted, inputs, outputs, tangents))

    trace = restricted(traced(function, structs), range(len(wanted)))
    read = tuple(trace.inputs)
    pushed = Signature(
        f"pushforward of {signature.name}",
        lambda *arrays: function(*with_unread(arrays, structs, read)),
        tuple([avals[i] for i in read]),
        device=signature.outputs[0].aval.device,
        rounds=signature.rounds,
        trace=trace,
    )
    pushed.require(None if signature.requirement is None else Requirement(None))
    return Pushforward(
        pushed,
        tuple([i for i in read if i < n]),
        tuple([i - n for i in read if n <= i < n + m]),
        tuple([i - n - m for i in read if i >= n + m]),
    )


def _tangents(
    signature: Signature, active: Positions, wanted: Positions, inputs: Arrays, outputs: Arrays, tangents: Arrays
) -> Sequence[jax.Array]:
    """The tangents of the outputs at `wanted`."""

    def smooth(*primals: jax.Array) -> list[jax.Array]:
        full = list(inputs)
        for i, x in zip(active, primals, strict=True):
            full[i] = x
        results = signature.fn(*full)
        return [results[i] for i in wanted]

    def pull(cotangents: list[jax.Array]) -> list[jax.Array]:
        by_output = dict(zip(wanted, cotangents, strict=True))
        full = tuple([by_output.get(i, jnp.zeros_like(outputs[i])) for i in range(signature.main)])
        grads = signature.derivatives.grads
        assert grads is not None, "only called where there are some"
        gradients = [grads(inputs, outputs, full)[i] for i in active]
        return [jnp.zeros_like(x) if g is None else g for g, x in zip(gradients, primals, strict=True)]

    primals, ends = [inputs[i] for i in active], [outputs[i] for i in wanted]
    real = not any(jnp.iscomplexobj(a) for a in (*inputs, *outputs))
    if signature.derivatives.grads is not None and real and all(i < signature.main for i in wanted):
        return _transposed(pull, ends, tangents)
    if any(equation.primitive.name == "custom_vjp_call" for equation in equations_of(signature.trace.closed)):
        return _transposed(lambda cotangents: list(vjp(smooth, *primals)[1](cotangents)), ends, tangents)
    return jvp(smooth, primals, list(tangents))[1]


def _transposed(
    pull: Callable[[list[jax.Array]], list[jax.Array]], ends: Sequence[jax.Array], tangents: Arrays
) -> Sequence[jax.Array]:
    """The transpose of a linear function from cotangents of `ends`, at `tangents`."""
    _, push = vjp(pull, [jnp.zeros_like(end) for end in ends])
    return push(list(tangents))[0]
