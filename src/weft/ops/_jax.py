"""Functions of jax's under their own names, with the types that jax leaves out."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar

import jax
from jax import lax
from jax import numpy as jnp
from jax.extend import core
from jax.extend.core import ClosedJaxpr
from jax.typing import DTypeLike

from weft._base.types import Arg
from weft.ops._kinds import Arrays

T = TypeVar("T")
P = ParamSpec("P")


class _Jit(Protocol):
    def __call__(
        self,
        fun: Callable[P, T],
        /,
        *,
        in_shardings: Any = ...,
        out_shardings: Any = ...,
        donate_argnums: Sequence[int] = ...,
        compiler_options: dict[str, Any] | None = ...,
    ) -> Callable[P, T]: ...


class _EvalShape(Protocol):
    def __call__(self, fun: Callable[..., Any], *args: Arg) -> Any: ...


class _BroadcastedIota(Protocol):
    def __call__(self, dtype: DTypeLike, shape: Sequence[int], dimension: int) -> jax.Array: ...


class _Jvp(Protocol):
    def __call__(self, fun: Callable[..., Any], primals: Arrays, tangents: Arrays) -> tuple[Any, Any]: ...


class _Collective(Protocol):
    def __call__(
        self, x: jax.Array, axis_name: str, *, axis_index_groups: Sequence[Sequence[int]] | None = None
    ) -> jax.Array: ...


class _Identity(Protocol):
    def __call__(self, x: T, /) -> T: ...


class _DevicePut(Protocol):
    def __call__(self, x: Any, device: Any, /, *, may_alias: bool | None = None) -> jax.Array: ...


class _ForiLoop(Protocol):
    def __call__(self, lower: int, upper: jax.Array | int, body_fun: Callable[[jax.Array, T], T], init_val: T) -> T: ...


class _LiveArrays(Protocol):
    def __call__(self, platform: str | None = None) -> Iterable[jax.Array]: ...


class _CustomVjp(Protocol):
    def __call__(self, *arrays: jax.Array) -> Any: ...

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any], /) -> object: ...


JaxRuntimeError: type[RuntimeError] = jax.errors.JaxRuntimeError
all_gather: _Collective = lax.all_gather
all_to_all: Callable[[jax.Array, str, int, int], jax.Array] = lax.all_to_all
block_until_ready: _Identity = jax.block_until_ready
broadcasted_iota: _BroadcastedIota = lax.broadcasted_iota
custom_vjp: Callable[[Callable[..., Any]], _CustomVjp] = jax.custom_vjp
custom_vjp_with: Callable[..., Any] = jax.custom_vjp
device_put: _DevicePut = jax.device_put
eval_shape: _EvalShape = jax.eval_shape
fori_loop: _ForiLoop = lax.fori_loop
jaxpr_as_fun: Callable[[ClosedJaxpr], Callable[..., list[jax.Array]]] = core.jaxpr_as_fun
jit: _Jit = jax.jit
jvp: _Jvp = jax.jvp
linear_transpose: Callable[..., Callable[..., Any]] = jax.linear_transpose
live_arrays: _LiveArrays = jax.live_arrays
make_jaxpr: Callable[..., Callable[..., Any]] = jax.make_jaxpr
optimization_barrier: _Identity = lax.optimization_barrier
pad: Callable[[jax.Array, tuple[int, int]], jax.Array] = jnp.pad
pmax: _Collective = lax.pmax
pmin: _Collective = lax.pmin
psum: _Collective = lax.psum
shard_map: Callable[..., Callable[..., Any]] = jax.shard_map
vjp: Callable[..., tuple[Any, Callable[..., Any]]] = jax.vjp
update_config: Callable[[str, bool | int | float | str | None], None] = jax.config.update


def equations_of(closed: ClosedJaxpr) -> Iterator[Any]:
    """The equations of a closed jaxpr, and those of the functions in their parameters."""
    for equation in closed.jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, ClosedJaxpr):
                    yield from equations_of(part)
