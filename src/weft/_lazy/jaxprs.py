"""What a jaxpr, jax's own record of a function, depends on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def read_by(jaxpr: Any, results: Sequence[int]) -> set[int]:
    """Positions of the arguments that these results depend on."""
    live = {id(jaxpr.outvars[at]) for at in results}
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or any(id(var) in live for var in eqn.outvars):
            inner = eqn.params.get("jaxpr") if eqn.primitive.name in ("jit", "pjit") else None
            if eqn.primitive.name == "optimization_barrier":
                live.update(id(i) for i, o in zip(eqn.invars, eqn.outvars, strict=True) if id(o) in live)
            elif inner is None:
                live.update(id(var) for var in eqn.invars)
            else:
                outs = [at for at, var in enumerate(eqn.outvars) if id(var) in live]
                live.update(id(eqn.invars[at]) for at in read_by(inner.jaxpr, outs))
    return {at for at, var in enumerate(jaxpr.invars) if id(var) in live}
