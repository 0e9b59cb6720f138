"""Parameters as one vector."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft._tensor.spelling import op
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError


def parameters_to_vector(parameters: Iterable[Any]) -> Tensor:
    """All elements, one parameter after another."""
    return op.cat([op.reshape(parameter, (-1,)) for parameter in parameters])


def vector_to_parameters(vec: Any, parameters: Iterable[Any]) -> None:
    """Give the parameters the elements of a vector; the rest of the vector is ignored."""
    if not isinstance(vec, Tensor):
        raise ArgumentError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    start = 0
    for parameter in parameters:
        end = start + parameter.numel()
        part = vec[start:end]  # pyright: ignore[reportIndexIssue]  derived from the operator table
        parameter.data = op.view(part, tuple(parameter.shape))
        start = end
