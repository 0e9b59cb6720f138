"""Forms: a graph as the function of its leaves that jax traces."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Hashable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from weft._lazy.precision import rewrite_barrier
from weft._lazy.signature import Arrays, Signature, structs_of
from weft._lazy.trace import traced
from weft.ops._jax import custom_vjp, jaxpr_as_fun

Application = tuple[Signature, tuple[int, ...], Sequence[tuple[int, int]]]
"""(signature, numbers of its inputs, (number, output) of each of its values)."""


def compiled_body(application: Application) -> Callable[..., Arrays]:
    """What computes an application in a compiled program, which nobody differentiates."""
    return application[0].compiled_fn


class Form(NamedTuple):
    """Applications in order, the numbers of the leaves and of the entries to return.

    Where entries are numbered in order of first use, equal graphs have equal forms.
    """

    applications: tuple[Application, ...]
    leaves: tuple[int, ...]
    wanted: tuple[int, ...]

    @property
    def collectives(self) -> list[Signature]:
        """The applications that exchange data with the other replicas."""
        return [signature for signature, _, _ in self.applications if signature.collective]

    def function(
        self,
        body: Callable[[Application], Callable[..., Arrays]] = compiled_body,
        stops: Collection[int] = (),
        *,
        barriers: bool = True,
    ) -> Callable[..., list[jax.Array]]:
        """The leaves' arrays -> the wanted entries. `stored`, a keyword, has the arrays of some entries.

        `body` gives the function of an application; gradients stop at the entries `stops`.
        Without `barriers`, a compiler may give results more precision than their types have.
        """
        operands = frozenset(number for _, inputs, _ in self.applications for number in inputs if barriers)
        return partial(_run, self, body, operands, stops)


def _run(
    form: Form,
    body: Callable[[Application], Callable[..., Arrays]],
    operands: Collection[int],
    stops: Collection[int],
    *leaves: jax.Array,
    stored: Mapping[int, jax.Array] | None = None,
) -> list[jax.Array]:
    entries: dict[int, jax.Array] = dict(zip(form.leaves, leaves, strict=True))
    equal: dict[Hashable, tuple[Sequence[jax.Array], Container[int]]] = {}
    for application in form.applications:
        signature, inputs, values = application
        results = equal.get((signature, inputs))
        if results is None:
            with jax.named_scope(signature.name.replace(" ", "_")):
                is_read = any(number in operands for number, _ in values)
                results = equal[signature, inputs] = _results(
                    body(application), signature, [entries[i] for i in inputs], is_read
                )
        arrays, exact = results
        for number, index in values:
            entry = arrays[index]
            if stored is not None and number in stored:
                entry = _as_if_computed(entry, stored[number])
            if number in operands and index not in exact:
                entry = rewrite_barrier(entry)
            entries[number] = jax.lax.stop_gradient(entry) if number in stops else entry
    return [entries[number] for number in form.wanted]


def _results(
    function: Callable[..., Arrays], signature: Signature, operands: Sequence[jax.Array], is_read: bool
) -> tuple[Sequence[jax.Array], Container[int]]:
    """The results of an application, and positions of those that nothing can rewrite.

    A barrier after a kernel would be a loop of its own over what the kernel returns. Where no other application reads
    them (`is_read`), as after a whole captured function, there is no barrier to save.
    """
    if not signature.rounds:
        return function(*operands), range(len(signature.outputs))
    if function is not signature.execution.native or not is_read:
        return function(*operands), ()
    trace = traced(function, structs_of(signature.avals))
    return jaxpr_as_fun(trace.closed)(*operands), trace.kernel_results()


@custom_vjp
def _as_if_computed(computed: jax.Array, stored: jax.Array) -> jax.Array:
    """`stored`, with the gradients of `computed`, of which nothing else is used."""
    del computed
    return stored


def _forward(computed: jax.Array, stored: jax.Array) -> tuple[jax.Array, None]:
    del computed
    return stored, None


def _backward(_: None, cotangent: jax.Array) -> tuple[jax.Array, jax.Array]:
    return cotangent, jnp.zeros_like(cotangent)


_as_if_computed.defvjp(_forward, _backward)
