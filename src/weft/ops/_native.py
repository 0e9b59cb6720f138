"""Bodies beside XLA's: a library's kernels or our own, for the calls in which they are faster.

A row names such bodies, each for one type of device. A native body computes a call and its first
derivative. What is made of these (higher derivatives, forward mode, batches of `vmap`) is made of the row's own body,
so kernels need no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from weft._base import config
from weft.ops._jax import custom_jvp, eval_shape, jvp

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Native:
    """A body for one type of device.

    device  the type, such as "cuda"
    serves  (the row's parameters, structs in place of arrays) -> whether it computes this call
    impl, vjp, aux   as the row's; their arrays have the types of the call, also 16-bit floats
    """

    device: str
    serves: Callable[..., bool]
    impl: Callable[..., Any]
    vjp: Callable[..., Any]
    aux: int = 0


def serving(
    natives: Sequence[Native], device_type: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Native | None:
    """The first of these bodies that computes a call with these arguments on such a device, or None."""
    if not config.NATIVE:
        return None
    return next((n for n in natives if n.device == device_type and n.serves(*args, **kwargs)), None)


def with_stand_in(native: Function, body: Function) -> Function:
    """A function that is `native` where it runs as it is, and `body` where jax differentiates or batches it.

    Both take arrays and return a sequence of arrays or None. What only `native` returns, since only its own derivative
    reads it, is zeros from `body`.
    """

    def stand_in(*arrays: jax.Array) -> Any:
        structs = eval_shape(lambda *tracers: tuple(native(*tracers)), *arrays)
        pairs = zip_longest(structs, body(*arrays))
        return tuple(
            [None if s is None else jnp.zeros(s.shape, s.dtype) if result is None else result for s, result in pairs]
        )

    @custom_vmap
    def run(*arrays: jax.Array) -> Any:
        return tuple(native(*arrays))

    def in_batches(size: int, are_batched: Sequence[bool], *arrays: jax.Array) -> Any:
        axes = [0 if batched else None for batched in are_batched]
        results = jax.vmap(stand_in, axes, axis_size=size)(*arrays)
        return results, tuple([None if result is None else True for result in results])

    def tangents_too(primals: Any, tangents: Any) -> tuple[Any, Any]:
        return jvp(stand_in, primals, tangents)

    run.def_vmap(in_batches)
    smooth = custom_jvp(run)
    smooth.defjvp(tangents_too)
    return smooth
