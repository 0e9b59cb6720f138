"""Gradients between users and backward passes, within which they have no names and no owners."""

from __future__ import annotations

from weft._lazy.aval import Aval
from weft._lazy.external import taken_in
from weft._lazy.value import Value
from weft._tensor.view import renamed
from weft.errors import DimNameError, DistError


def as_gradient_of(aval: Aval, grad: Value) -> Value:
    """A gradient as users get it: inside of a backward pass, gradients have no names and no owners."""
    if aval.owner is not None and grad.aval.owner is None:
        grad = aval.owner.of_gradient(grad)
    return grad if aval.names == grad.aval.names else renamed(grad, aval.names)


def as_cotangent(grad: Value, aval: Aval, text: str) -> Value:
    """A gradient of something of type `aval` as a backward pass takes it.

    `RuntimeError` where it has other names than that, or is distributed and that is not.
    """
    grad = taken_in(grad)
    if aval.owner is not None:
        grad = aval.owner.to_cotangent(grad, text)
    elif grad.aval.mesh is not None:
        raise DistError(f"{text} is a DTensor, and what it is the gradient of is a plain tensor: use to_local()")
    names = grad.aval.names
    if names is None:
        return grad
    if names != aval.names:
        own = list(aval.names or (None,) * len(aval.shape))
        raise DimNameError(
            f"Mismatch in names: {text} has dims {list(names)}, and what it is the gradient of has dims {own}. Please "
            "rename it with `Tensor.rename`, or align it."
        )
    return renamed(grad, None)
