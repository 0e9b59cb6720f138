"""Checks of options, with PyTorch's error texts."""

from __future__ import annotations

from weft._base.types import Arg
from weft._tensor.kind_names import is_of_other_library, kind_and_advice
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ValueRangeError


def require(name: str, value: float | Tensor, low: float = 0.0, high: float | None = None) -> None:
    """Require low <= value < high; NaN is refused. The values of tensors are not checked."""
    if isinstance(value, Tensor):
        require_one(value)
    elif is_of_other_library(value):
        raise ArgumentError(f"{name} must be a number or a Tensor, not {kind_and_advice(value)}")
    elif not (value >= low and (high is None or value < high)):
        raise ValueRangeError(f"Invalid {name}: {value}")


def require_one(lr: float | Tensor) -> None:
    """Refuse a learning rate that is a tensor of several elements."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueRangeError("Tensor lr must be 1-element")


def require_that(holds: object, text: str) -> None:
    """Refuse an option unless a condition holds, which it does not for NaN. The values of tensors are not checked."""
    if not isinstance(holds, Tensor) and not holds:
        raise ValueRangeError(text)


def require_options(**options: Arg) -> None:
    """Require, in order, non-negative numbers, `betas` in [0, 1), and no NaN."""
    for name, value in options.items():
        if name == "betas":
            for at in range(2):
                require(f"beta parameter at index {at}", value[at], 0.0, 1.0)
        else:
            require(_WORDS.get(name, f"{name} value"), value)


_WORDS = {"lr": "learning rate", "eps": "epsilon value"}
