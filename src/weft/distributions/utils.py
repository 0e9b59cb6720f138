"""What distributions share: broadcast parameters, probabilities and their logits, properties computed on first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from numbers import Number
from operator import attrgetter
from typing import Any

from weft._base.limits import finfo
from weft._base.state import default_dtype, using
from weft._base.types import AttributeValue
from weft._tensor.codegen import op
from weft._tensor.composite.shape import broadcast_tensors
from weft._tensor.convert import tensor
from weft._tensor.kind_names import kind_and_advice
from weft._tensor.tensor import Tensor
from weft.errors import NotDefinedError, ValueRangeError

euler_constant = 0.5772156649015329


def broadcast_all(*values: object) -> tuple[Tensor, ...]:
    """Tensors and numbers, all as tensors of their common shape.

    Numbers get the type and the device of the first tensor, or the default type. Raises `ValueError` for other objects.
    """
    for value in values:
        if not isinstance(value, (Tensor, Number)):
            raise ValueRangeError(
                "Input arguments must all be instances of Number, torch.Tensor or objects implementing "
                f"__torch_function__, but got {kind_and_advice(value)}"
            )
    like = next((value for value in values if isinstance(value, Tensor)), None)
    dtype, device = (default_dtype(), None) if like is None else (like.dtype, like.device)
    tensors = [x if isinstance(x, Tensor) else tensor(x, dtype=dtype, device=device) for x in values]
    return tuple(broadcast_tensors(*tensors))


def standard_normal(shape: Sequence[int], like: Tensor) -> Tensor:
    """Normal numbers with the type and the device of `like`."""
    return op.randn(shape, dtype=like.dtype, device=like.device)


def uniform_numbers(shape: Sequence[int], like: Tensor) -> Tensor:
    """Uniform numbers from [0, 1) with the type and the device of `like`."""
    return op.rand(shape, dtype=like.dtype, device=like.device)


def sum_rightmost(value: Tensor, ndims: int) -> Tensor:
    """The sum over the last `ndims` dims."""
    return value.flatten(value.dim() - ndims).sum(-1) if ndims else value


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities: by the logistic function for events, by softmax over the last dim for categories."""
    return op.sigmoid(logits) if is_binary else op.softmax(logits, -1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities that are neither 0 nor 1."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Log odds of events, or logarithms of the probabilities of categories; finite for 0 and 1, too."""
    clamped = clamp_probs(probs)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


class Undefined:
    """An attribute that not all classes define."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type | None = None) -> AttributeValue:
        if instance is None:
            return self
        raise undefined(instance, self.name)


def attribute(path: str) -> Any:
    """A property that gives the attribute at a dotted path, such as `base_dist.loc`."""
    return property(attrgetter(path))


def undefined(instance: object, name: str) -> NotDefinedError:
    """The error for an attribute or a method that the class of an object does not define."""
    return NotDefinedError(f"{type(instance)} does not implement {name}")


class lazy_property:
    """A property that is computed on first use, with gradients, and then is an attribute of the instance."""

    def __init__(self, wrapped: Callable[[Any], object]) -> None:
        self.wrapped = wrapped
        update_wrapper(self, wrapped)  # pyright: ignore[reportArgumentType]

    def __get__(self, instance: object, obj_type: type | None = None) -> AttributeValue:
        if instance is None:
            return _LazyPropertyOfClass(self.wrapped)
        with using(grad=True):
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class _LazyPropertyOfClass(lazy_property, property):
    """What the class itself has: for tools that look for properties, one of these, too."""

    def __init__(self, wrapped: Callable[[Any], object]) -> None:
        property.__init__(self, wrapped)


def _lower_indices(size: int, diag: int, like: Tensor) -> tuple[Tensor, Tensor]:
    rows, columns = op.tril_indices(size, size, diag, device=like.device)
    return rows, columns


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The elements on and below a diagonal, row by row."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueRangeError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = _lower_indices(n, diag, mat)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """The square matrix with these elements on and below a diagonal, row by row, and zeros elsewhere."""
    count, odd = vec.shape[-1], 1 + 2 * diag
    n = (-odd + (odd**2 + 8 * count + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2
    size = round(n)
    if size - n > finfo(vec.dtype).eps:
        raise ValueRangeError(
            f"The size of last dimension is {count} which cannot be expressed as "
            "the lower triangular part of a square D x D matrix."
        )
    mat = vec.new_zeros((*vec.shape[:-1], size, size))
    rows, columns = _lower_indices(size, diag, vec)
    mat[..., rows, columns] = vec
    return mat


# For distributions of libraries, which import them under these names
_standard_normal = standard_normal
_sum_rightmost = sum_rightmost
