"""What may be assigned to `Tensor.grad`."""

from __future__ import annotations

from weft._tensor.base import TensorBase
from weft._tensor.dim_names import label_of
from weft._tensor.kind_names import kind_and_advice
from weft.errors import ArgumentError, DimNameError, DistError, DTypeError, GradientError, ShapeError
from weft.ops._type_names import c_name, scalar_name


def require_gradient(grad: object, tensor: TensorBase) -> None:
    """Raise unless `grad` is another tensor with the shape and type of `tensor`, and with its names or none."""
    if not isinstance(grad, TensorBase):
        kind = f"{kind_and_advice(grad)}"
        raise ArgumentError(f"assigned grad expected to be a Tensor or None but got grad of type {kind}")
    if grad is tensor:
        raise GradientError("can't assign Variable as its own grad")
    ours, theirs = tensor._read().aval, grad._read().aval
    if (theirs.mesh is None) != (ours.mesh is None):
        kind, other = ("a DTensor", "a plain tensor") if theirs.mesh is None else ("a plain tensor", "a DTensor")
        raise DistError(f"attempting to assign {other} as the gradient of {kind}; use distribute_tensor, or to_local()")
    if theirs.size != ours.size:
        raise ShapeError(
            f"attempting to assign a gradient of size '{list(theirs.size)}' to a tensor of size "
            f"'{list(ours.size)}'. Please ensure that the gradient and the tensor are the same size"
        )
    if grad.dtype is not tensor.dtype:
        raise DTypeError(
            f"attempting to assign a gradient with dtype '{c_name(grad.dtype)}' to a tensor with grad_dtype "
            f"'{scalar_name(tensor.dtype)}'. The gradient must match the tensor's grad_dtype, which is its dtype"
        )
    if theirs.names not in (None, ours.names):
        raise DimNameError(
            f"attempting to assign a gradient with the names {list(theirs.names)} to {label_of(tensor)}. A gradient "
            "has the names of its tensor, or none: rename it, or align it with align_as"
        )
