"""Exchange of two tensors, of which everything else refers to the objects."""

from __future__ import annotations

from weft._tensor.tensor import Tensor
from weft.errors import UnsupportedCallError


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Let two leaves exchange elements, gradients, classes and attributes, while each stays the same object.

    `RuntimeError` if one of them was computed with a gradient, so that a graph refers to it.
    """
    if not (t1.is_leaf and t2.is_leaf):
        raise UnsupportedCallError("swap_tensors: a tensor that is no leaf belongs to a graph; swap detached tensors")
    parts = [(x.detach(), x.requires_grad, x.grad, type(x), dict(vars(x))) for x in (t1, t2)]
    for x, (data, requires_grad, grad, kind, attributes) in zip((t1, t2), reversed(parts), strict=True):
        x.requires_grad_(False)
        x.grad = None
        if type(x) is not kind:
            x.__class__ = kind
        vars(x).clear()
        vars(x).update(attributes)
        x.data = data
        x.requires_grad_(requires_grad)
        x.grad = grad
