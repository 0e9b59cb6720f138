"""Functions compiled by XLA for a device."""

from __future__ import annotations

from collections.abc import Sequence

from jax.sharding import SingleDeviceSharding

from weft._base.device import device
from weft._base.types import AnyCallable, Result
from weft._lazy.precision import compiler_options
from weft._lazy.runtime import jax_device
from weft._lazy.sharded import on_one_mesh
from weft.ops._jax import jit


def compiled(body: AnyCallable, target: device, donated: Sequence[int] = ()) -> AnyCallable:
    """The body as a function that jax compiles at its first call; it may overwrite the arguments at `donated`.

    Arguments may be NumPy arrays. Since the device is fixed here, jax does not compile again for them. Only on the
    device "xla" may arguments be split over a mesh. Then jax compiles the body for the mesh, and chooses how results
    are split.
    """
    held = jax_device(target)
    there = SingleDeviceSharding(held)
    options = compiler_options(held.platform)
    single = jit(body, in_shardings=there, out_shardings=there, donate_argnums=tuple(donated), compiler_options=options)
    if target.type != "xla":
        return single
    partitioned = jit(body, donate_argnums=tuple(donated), compiler_options=options)

    def run(*arguments: object) -> Result:
        on_mesh = on_one_mesh(arguments)
        return single(*arguments) if on_mesh is None else partitioned(*on_mesh)

    return run
