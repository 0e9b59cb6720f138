"""Gradients of each sample, for which there is another way here."""

from __future__ import annotations

from typing import NoReturn

from weft.errors import UnsupportedCallError
from weft.nn._module import Module


def call_for_per_sample_grads(
    module: Module, *, batch_size: int | None = None, loss_reduction: str = "sum", batch_first: bool = True
) -> NoReturn:
    """Raises `NotImplementedError`: `vmap` of `grad` gives the gradients of each sample."""
    raise UnsupportedCallError(
        "call_for_per_sample_grads: weft.func.vmap(weft.func.grad(loss), in_dims=(None, 0, 0)), where loss takes the "
        "parameters and one sample and calls weft.func.functional_call, gives the gradients of each sample"
    )
