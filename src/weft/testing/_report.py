"""How far two results are apart, in words."""

from __future__ import annotations

import numpy as np

from weft._base.dtype import int64
from weft._base.types import Arg
from weft._tensor.tensor import Tensor


def scalars_differ(actual: Arg, expected: Arg, rtol: float, atol: float) -> str:
    """Two numbers, and their absolute and relative difference."""
    absolute = abs(actual - expected)
    relative = float("inf") if expected == 0 else absolute / abs(expected)
    lines = [
        f"Expected {expected} but got {actual}.",
        f"Absolute difference: {absolute}{_limit(atol, rtol, atol)}",
        f"Relative difference: {relative}{_limit(rtol, rtol, atol)}",
    ]
    return "\n".join([_headline("Scalars", rtol, atol), *lines])


def tensors_differ(actual: Tensor, expected: Tensor, close: Tensor, rtol: float, atol: float) -> str:
    """How many elements of two tensors are not `close`, and the largest differences with their indices."""
    if not actual.ndim:
        return scalars_differ(actual.item(), expected.item(), rtol, atol)
    if not (actual.dtype.is_floating_point or actual.dtype.is_complex):
        actual, expected = actual.to(int64), expected.to(int64)
    absolute = (actual - expected).abs().masked_fill(close, 0)
    relative = (absolute / expected.abs()).masked_fill(close, 0)
    count, different = close.numel(), close.numel() - int(close.sum())
    lines = [
        f"Mismatched elements: {different} / {count} ({different / count:.1%})",
        f"Greatest absolute difference: {_largest(absolute)}{_limit(atol, rtol, atol)}",
        f"Greatest relative difference: {_largest(relative)}{_limit(rtol, rtol, atol)}",
    ]
    return "\n".join([_headline("Tensor-likes", rtol, atol), *lines])


def _headline(what: str, rtol: float, atol: float) -> str:
    return f"{what} are not {'close' if rtol or atol else 'equal'}!\n"


def _limit(tolerance: float, rtol: float, atol: float) -> str:
    return f" (up to {tolerance} allowed)" if rtol or atol else ""


def _largest(differences: Tensor) -> str:
    at = int(differences.argmax())
    index = tuple([int(i) for i in np.unravel_index(at, tuple(differences.shape))])
    return f"{differences.flatten()[at].item()} at index {index}"
