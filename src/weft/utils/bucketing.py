"""Dims whose size changes from call to call, padded to few sizes, so that few programs are compiled."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from weft._base.types import Arg, PyTree, Result
from weft._lazy.flushing import flush_pending
from weft._tensor.codegen import op
from weft._tensor.convert import from_host
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ShapeError, ValueRangeError

F = TypeVar("F", bound=Callable[..., Any])


def bucketed(
    dims: Mapping[str, int],
    *,
    mask: str | None = None,
    fill: float | Mapping[str, float] = 0,
    result_dim: int | None = None,
    smallest: int = 8,
) -> Callable[[F], F]:
    """A decorator: the function gets tensors that are padded to the next power of two.

    So the sizes up to n need at most log2(n) programs.

    dims        for each parameter that is padded, the dim; these dims have one size in each call
    mask        the parameter that gets a boolean tensor of shape (padded size,), True where elements are the caller's.
                The function must use it wherever padding would change a result: in a loss, a mean, attention
    fill        what is padded with: a number, or one for each parameter
    result_dim  the dim of the results (a tensor, or a tuple or list of tensors) that is cut back to the caller's size;
                None leaves them as they are
    smallest    the smallest padded size

    Around `weft.compile`, a captured function is replayed for all sizes of a bucket. Tensors that require a gradient
    are padded as part of the recorded graph, all others at once.
    """
    if smallest < 1:
        raise ValueRangeError(f"bucketed: smallest must be at least 1, got {smallest}")
    if not dims:
        raise ValueRangeError("bucketed: dims is empty; name the parameters to pad, such as {'ids': 1}")

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        for name in (*dims, *([mask] if mask is not None else [])):
            if name not in signature.parameters:
                raise ArgumentError(f"bucketed: {function.__qualname__} has no parameter {name!r}")
        open_parameters = [p for p in signature.parameters.values() if p.name != mask]
        given_signature = signature.replace(parameters=open_parameters)

        @wraps(function)
        def run(*args: Arg, **kwargs: Arg) -> Result:
            arguments = given_signature.bind(*args, **kwargs).arguments
            size = _common_size(arguments, dims)
            padded = max(smallest, 1 << (size - 1).bit_length() if size else 1)
            for name, dim in dims.items():
                number = fill[name] if isinstance(fill, Mapping) else fill
                arguments[name] = _padded(arguments[name], dim, padded - size, number)
            if mask is not None:
                arguments[mask] = from_host(np.arange(padded) < size)
            result = function(**arguments)
            return result if result_dim is None else _cut(result, result_dim, size)

        return run  # pyright: ignore[reportReturnType]  it takes the function's arguments, less the mask

    return decorate


def _common_size(arguments: Mapping[str, object], dims: Mapping[str, int]) -> int:
    sizes: dict[str, int] = {}
    for name, dim in dims.items():
        x = arguments.get(name)
        if not isinstance(x, Tensor):
            raise ArgumentError(f"bucketed: argument {name!r} must be a tensor, got {type(x).__name__}")
        sizes[name] = x.size(dim)
    if len(set(sizes.values())) > 1:
        raise ShapeError(f"bucketed: the padded dims must have one size, got {sizes}")
    return next(iter(sizes.values()))


def _padded(x: Tensor, dim: int, more: int, number: float) -> Tensor:
    if not more:
        return x
    at = dim % x.ndim
    if x.requires_grad:
        shape = [more if d == at else size for d, size in enumerate(x.shape)]
        return op.cat([x, op.full(shape, number, dtype=x.dtype, device=x.device)], at)
    widths = [(0, more if d == at else 0) for d in range(x.ndim)]
    padded = np.pad(x._host(), widths, constant_values=np.asarray(number, x.dtype.numpy))
    return from_host(padded).to(x.device)


def _cut(result: PyTree, dim: int, size: int) -> PyTree:
    """The results without what belongs to padding; they are computed first, since a cut is of the caller's size."""
    flush_pending()
    if isinstance(result, Tensor):
        return result.narrow(dim, 0, size)
    return type(result)(_cut(part, dim, size) for part in result)
