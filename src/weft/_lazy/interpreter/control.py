"""Loops and branches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._base.interrupts import received, uninterrupted
from weft._lazy.interpreter.machine import runner
from weft._lazy.interpreter.table import Array, Function, MissingPrimitive, Params, Types, primitive


def _expanded(mask: Array, like: Array) -> Array:
    """The mask with trailing dims of size 1, so that it broadcasts to an array with more dims."""
    return mask.reshape(mask.shape + (1,) * (like.ndim - mask.ndim))


@primitive("while", view=True, dynamic=True)
def _while(params: Params, ins: Types, outs: Types) -> Function:
    condition, body = runner(params["cond_jaxpr"]), runner(params["body_jaxpr"])
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]

    def loop(*arrays: Array) -> Sequence[Array]:
        of_condition, of_body = arrays[:first], arrays[first:second]
        carry: Sequence[Array] = arrays[second:]
        while (goes_on := condition((*of_condition, *carry))[0]).any():
            if received:  # this may be an endless loop
                uninterrupted.poll()
            new = body((*of_body, *carry))
            if goes_on.ndim:  # a batch of loops: those that have ended keep their carries
                new = [np.where(_expanded(goes_on, x), x, old) for x, old in zip(new, carry, strict=True)]
            carry = new
        return carry

    return loop


def constants_and_carries(params: Params) -> tuple[int, int]:
    """How many inputs of a scan are constants, and how many carries follow them."""
    if "ft_in" in params:  # jax 0.11 has a tree of (constants, carries, scanned arrays)
        constants, carries, _ = params["ft_in"].unpack()
        return len(constants), len(carries)
    return params["num_consts"], params["num_carry"]


@primitive("scan", view=True, dynamic=True)
def _scan(params: Params, ins: Types, outs: Types) -> Function:
    body = runner(params["jaxpr"])
    consts, carries = constants_and_carries(params)
    length = params["length"]
    stacked = outs[carries:]
    steps = range(length)[:: -1 if params["reverse"] else 1]

    def scan(*arrays: Array) -> Sequence[Array]:
        fixed, carry, xs = arrays[:consts], arrays[consts : consts + carries], arrays[consts + carries :]
        ys = [np.empty(shape, dtype) for shape, dtype in stacked]
        for at in steps:
            if received:
                uninterrupted.poll()
            results = body((*fixed, *carry, *[x[at, ...] for x in xs]))
            carry = results[:carries]
            for y, result in zip(ys, results[carries:], strict=True):
                y[at] = result
        return [*carry, *ys]

    return scan


@primitive("cond", view=True, dynamic=True)
def _cond(params: Params, ins: Types, outs: Types) -> Function:
    branches = [runner(branch) for branch in params["branches"]]
    last = len(branches) - 1

    def branch(index: Array, *operands: Array) -> Sequence[Array]:
        return branches[min(max(int(index), 0), last)](operands)

    return branch


@primitive("platform_index")
def _platform_index(params: Params, ins: Types, outs: Types) -> Function:
    for at, platforms in enumerate(params["platforms"]):
        if platforms is None or "cpu" in platforms:
            return lambda: np.array(at, outs[0].dtype)
    raise MissingPrimitive("platform_index")
