"""The directions in which functions are differentiated: tangents of tensors, and the standard basis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft._tensor.codegen import op
from weft._tensor.composite.create import eye
from weft._tensor.examples import Examples
from weft._tensor.tensor import Tensor
from weft.errors import ShapeError, ValueRangeError


def require_tangent(tensor: Tensor, tangent: Tensor) -> None:
    """Raise `ValueError` unless a tensor and its tangent have derivatives, `RuntimeError` if their sizes differ."""
    for what, x in (("primal", tensor), ("tangent", tangent)):
        if not x.dtype.is_differentiable:
            raise ValueRangeError(f"Expected {what} to be floating point or complex, but got: {x.dtype}")
    if tensor.shape != tangent.shape:
        raise ShapeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not "
            f"supported. Tensor is of size {list(tensor.shape)} while the given forward gradient is of size "
            f"{list(tangent.shape)}."
        )


def in_all_directions(
    function: Callable[..., Sequence[Tensor]], tensors: Sequence[Tensor], chunk_size: int | None = None
) -> list[Tensor]:
    """`function` of each vector of the standard basis of the space of `tensors`, along a new first dim.

    The vectors are taken together, or so many at a time.
    """
    total = sum(x.numel() for x in tensors)
    step = max(1, total if chunk_size is None else min(chunk_size, total))
    chunks = [_together(function, tensors, start, min(step, total - start)) for start in range(0, total or 1, step)]
    return [column[0] if len(column) == 1 else op.cat(column) for column in zip(*chunks, strict=True)]


def _together(
    function: Callable[..., Sequence[Tensor]], tensors: Sequence[Tensor], start: int, count: int
) -> list[Tensor]:
    """`function` of `count` vectors of the basis from number `start` on."""
    examples = Examples(count, "error")
    vectors = [examples.example_of(part) for part in _basis(tensors, start, count)]
    return [examples.for_each(x) for x in examples.run(function, vectors)]


def _basis(tensors: Sequence[Tensor], start: int, count: int) -> list[Tensor]:
    """Vectors of the standard basis of the space of several tensors: for each tensor its parts of all of them."""
    offset = 0
    parts: list[Tensor] = []
    for x in tensors:
        numel = x.numel()
        whole = op.zeros((count, numel), dtype=x.dtype, device=x.device)
        first, last = max(start, offset), min(start + count, offset + numel)
        if first < last:
            whole[first - start : last - start, first - offset : last - offset] = eye(
                last - first, dtype=x.dtype, device=x.device
            )
        parts.append(whole.reshape(count, *x.shape))
        offset += numel
    return parts


def split_by(
    jacobian: Tensor, tensors: Sequence[Tensor], shape: Sequence[int], *, at_end: bool = False
) -> list[Tensor]:
    """A Jacobian whose first (or last) dim counts the elements of several tensors, for each of these.

    `shape` is that of the rest; the dims of the tensors come first (or last).
    """
    parts = jacobian.split([x.numel() for x in tensors], -1 if at_end else 0)
    sizes = [(*shape, *x.shape) if at_end else (*x.shape, *shape) for x in tensors]
    return [part.reshape(size) for part, size in zip(parts, sizes, strict=True)]
