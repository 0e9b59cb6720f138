"""`weft.to_jax`: a function of tensors as a function of jax arrays."""

from __future__ import annotations

from dataclasses import replace
from functools import update_wrapper

import jax
import jax.core

from weft._base.types import AnyCallable, Arg, PyTree
from weft._interop.structure import Flat, arrays_in, tensors_in
from weft._interop.trace import traced
from weft._lazy.reading import array_of
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError


def to_jax(fn: AnyCallable, *, random: bool = False) -> AnyCallable:
    """`fn` as a function of jax arrays, for `jax.jit`, `jax.grad`, `jax.vmap` and libraries such as optax.

    Arrays in its arguments (in any pytree) are passed to `fn` as tensors; tensors in its result are returned as arrays.
    Tensors that it uses from outside, such as a module's parameters, are constants for jax; pass those that should be
    differentiated. With `random`, the first argument is a `jax.random.key`, which all random operators use.

    `CompileError` under a transformation if `fn` reads values, writes to tensors that it has not created, or draws
    random numbers without a key. The operators' own derivatives are used, so only reverse mode works: `jax.jvp` is
    refused.
    """
    name = getattr(fn, "__name__", type(fn).__name__)

    def function(*args: Arg, **kwargs: Arg) -> PyTree:
        key = None
        if random:
            if not args:
                raise ArgumentError(f"to_jax({name}, random=True): the first argument must be a jax.random.key")
            key, args = args[0], args[1:]
        arguments = arrays_in((args, kwargs))
        if key is None and not any(isinstance(a, jax.core.Tracer) for a in arguments.inputs):
            args, kwargs = arguments.with_tensors()
            return jax.tree.map(_as_array, fn(*args, **kwargs), is_leaf=_is_tensor)
        results: list[Flat] = []  # without tensors: `undo` takes a written one that still exists for one from outside

        def run(tensors: list[Tensor]) -> list[Tensor]:
            args, kwargs = arguments.rebuilt(tensors)
            outputs = tensors_in(fn(*args, **kwargs))
            results.append(replace(outputs, inputs=[]))
            return outputs.inputs

        arrays = traced(run, arguments.inputs, f"to_jax({name})", key=key, on_tape=True)
        return results[0].rebuilt(arrays)

    return update_wrapper(function, fn) if hasattr(fn, "__name__") else function


def _is_tensor(x: object) -> bool:
    return isinstance(x, Tensor)


def _as_array(x: object) -> PyTree:
    return array_of(x._read()) if isinstance(x, Tensor) else x
