"""Anomaly mode: a derivative that is NaN is an error, which names the line of the forward operator."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp

from weft._autograd.graph import Vertex
from weft._autograd.node import backward_name
from weft._base.device import META
from weft._lazy.reading import array_of
from weft._lazy.role import Interior
from weft._lazy.value import Value
from weft.errors import GradientError


def check_finite(head: Vertex, grads: Sequence[Value | None]) -> None:
    """Raise at the first derivative of an application that is NaN."""
    assert head.origin is not None, "only applications are differentiated"
    assert isinstance(head.role, Interior), "only applications are differentiated"
    for at, grad in enumerate(grads):
        if grad is None or grad.aval.device is META or not grad.aval.dtype.is_differentiable:
            continue
        array = array_of(grad)
        if bool(jnp.isnan(array).any()):
            raise GradientError(
                f"Function '{backward_name(head)}' returned nan values in its {at}th output. "
                f"The forward operator {head.origin.signature.name} was called at {head.role.site or '<unknown>'}"
            )
