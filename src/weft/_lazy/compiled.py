"""Functions as programs that XLA compiles for a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from weft._base.device import device
from weft._lazy.precision import compiler_options
from weft._lazy.runtime import default_jax_device, jax_device


def compiled(body: Callable[..., Any], where: device, donated: Sequence[int] = ()) -> Callable[..., Any]:
    """The body as a function that jax compiles at its first call; it may overwrite the arguments at `donated`."""
    held = jax_device(where)
    run = jax.jit(body, donate_argnums=tuple(donated), compiler_options=compiler_options(held.platform))
    if held is default_jax_device():
        return run

    def run_there(*args: Any) -> Any:
        with jax.default_device(held):
            return run(*args)

    return run_there
