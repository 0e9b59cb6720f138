"""`weft.from_jax`: a traceable jax function as an operator."""

from __future__ import annotations

from functools import update_wrapper
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from weft._base.device import CPU
from weft._base.types import AnyCallable, Arg, PyTree
from weft._dispatch import apply_signature
from weft._interop.structure import Flat, tensors_in
from weft._lazy.infer import common_device
from weft._lazy.signature import Signature
from weft._tensor.tensor import operand, wrap
from weft.errors import ArgumentError

if TYPE_CHECKING:
    from weft._lazy.aval import Aval

_MOST_SIGNATURES = 1024


def from_jax(fn: AnyCallable) -> AnyCallable:
    """An operator on tensors that computes what `fn` computes on jax arrays; `fn` must be traceable by `jax.jit`.

    Tensors in its arguments (in any pytree) are passed to `fn` as arrays; arrays in its result are returned as tensors.
    All other arguments are constants: `fn` is traced again for each value, so pass numbers that change as tensors.

    The call is recorded, compiled and differentiated like any operator; the derivative is `jax.vjp` of `fn`, including
    its `jax.custom_vjp` rules.
    """
    name = getattr(fn, "__name__", type(fn).__name__)
    signatures: dict[Any, tuple[Signature, Any]] = {}

    def operator(*args: Arg, **kwargs: Arg) -> PyTree:
        arguments = tensors_in((args, kwargs))
        inputs = tuple([operand(tensor) for tensor in arguments.inputs])
        key = (arguments.tree, tuple(map(_constant, arguments.rest)), tuple([x.aval for x in inputs]))
        try:
            entry = signatures.get(key)
        except TypeError:
            odd = next(type(x).__name__ for x in arguments.rest if not _hashable(x))
            raise ArgumentError(
                f"{name}(): arguments that hold no tensors are constants, and must be hashable; got {odd}"
            ) from None
        if entry is None:
            # A constant that changes with every call would keep a program for each.
            if len(signatures) >= _MOST_SIGNATURES:
                del signatures[next(iter(signatures))]
            entry = signatures[key] = _signature(fn, name, arguments, key[2])
        signature, results = entry
        outputs = apply_signature(signature, inputs) if signature.outputs else ()
        return jax.tree.unflatten(results, map(wrap, outputs))

    return update_wrapper(operator, fn) if hasattr(fn, "__name__") else operator


def _signature(fn: AnyCallable, name: str, arguments: Flat, avals: tuple[Aval, ...]) -> tuple[Signature, Any]:
    """The signature of the function for inputs of these types, and the structure of its results."""
    trees: list[Any] = []

    def flat(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        args, kwargs = arguments.rebuilt(arrays)
        leaves, tree = jax.tree.flatten(fn(*args, **kwargs))
        trees[:] = [tree]
        return tuple(leaves)

    device = common_device(name, avals) if avals else CPU
    return Signature(name, flat, avals, device=device), trees[0]


def _constant(x: object) -> tuple[type, object]:
    """A key for a constant. Floats are represented by their text, as 0.0 equals -0.0, and NaN does not equal itself."""
    return type(x), repr(x) if isinstance(x, (float, complex, np.inexact)) else x


def _hashable(x: object) -> bool:
    try:
        hash(x)
    except TypeError:
        return False
    return True
