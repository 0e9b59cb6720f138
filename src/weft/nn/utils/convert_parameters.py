"""Parameters as one vector."""

from __future__ import annotations

from collections.abc import Iterable

from weft._base.guards import is_a
from weft._tensor.codegen import op
from weft._tensor.kind_names import kind_and_advice
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements, one parameter after another. The parameters must be on one device."""
    items = list(parameters)
    _require_one_device(items)
    return op.cat([op.view(parameter, (-1,)) for parameter in items])


def _require_one_device(parameters: list[Tensor]) -> None:
    if len({parameter.device for parameter in parameters}) > 1:
        raise ArgumentError("Found two parameters on different devices, this is currently not supported.")


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Set the parameters' elements from a vector; the rest of the vector is ignored."""
    if not is_a(vec, Tensor):
        raise ArgumentError(f"expected torch.Tensor, but got: {kind_and_advice(vec)}")
    items = list(parameters)
    _require_one_device(items)
    start = 0
    for parameter in items:
        end = start + parameter.numel()
        part = vec[start:end]
        parameter.data = op.view(part, tuple(parameter.shape))
        start = end
