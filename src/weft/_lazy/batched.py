"""Signatures for several examples at once: `jax.vmap` of what a signature computes, of its derivative and its check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp

from weft._base.types import AnyArray
from weft._lazy.aval import Aval, aval_of
from weft._lazy.precondition import Precondition
from weft._lazy.signature import Arrays, Requirement, Signature

Flags = tuple[bool, ...]


def batched(signature: Signature, flags: Flags, size: int) -> Signature:
    """The signature on `size` examples, along a new first dim of the inputs that `flags` marks, and of all outputs.

    Inputs that are not marked are the same for all examples.
    """
    key = ("batched", flags, size)
    result = signature.derivatives.cache.get(key)
    if result is None:
        result = signature.derivatives.cache.setdefault(key, _batched(signature, flags, size))
    return result


def batched_aval(aval: Aval, size: int) -> Aval:
    """The type of `size` examples of a type, along a new first dim, which like all others has no name."""
    return aval_of((size, *aval.shape), aval.dtype, device=aval.device)


def _batched(signature: Signature, flags: Flags, size: int) -> Signature:
    axes = tuple([0 if flag else None for flag in flags])
    outputs, avals = signature.outputs, zip(signature.avals, flags, strict=True)
    grads = signature.derivatives.grads
    result = Signature(
        f"vmap of {signature.name}",
        jax.vmap(signature.fn, axes, axis_size=size),
        tuple([batched_aval(aval, size) if flag else aval for aval, flag in avals]),
        device=outputs[0].aval.device,
        aux=len(outputs) - signature.main,
        differentiable=any(output.taped is not None for output in outputs),
        call=signature.call,
        grads=None if grads is None else partial(_gradients, grads, axes),
        rounds=signature.rounds,
    )
    precondition = signature.precondition
    if precondition is not None:
        codes = partial(_first_codes, jax.vmap(precondition.codes, axes, axis_size=size))
        result.require(Requirement(Precondition(codes, precondition.templates, waits=precondition.waits)))
    else:
        result.require(signature.requirement)
    return result


def _gradients(
    grads: Callable[..., Sequence[jax.Array | None]],
    axes: Sequence[int | None],
    inputs: Arrays,
    outputs: Arrays,
    cotangents: Arrays,
) -> list[jax.Array | None]:
    """The hand-written derivative for all examples; gradients of what they share are added up."""
    several = jax.vmap(grads, (list(axes), 0, 0))(list(inputs), tuple(outputs), tuple(cotangents))
    return [g if g is None or axis == 0 else jnp.sum(g, 0) for g, axis in zip(several, axes, strict=True)]


def _first_codes(codes: Callable[..., list[AnyArray]], *arrays: AnyArray) -> list[AnyArray]:
    """For each template the code of the first example to which it applies, or 0."""
    return [code[jnp.argmax(code != 0)] if code.size else jnp.zeros((), code.dtype) for code in codes(*arrays)]
