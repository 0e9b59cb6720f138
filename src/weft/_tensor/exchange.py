"""Tensors in Python's and NumPy's protocols: `copy.copy`, `in`, and results of NumPy functions."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from weft._tensor.convert import from_host
from weft._tensor.copying import extras_of
from weft._tensor.tensor import Tensor
from weft.errors import DTypeError


def copied(self: Tensor) -> Tensor:
    """`copy.copy`: a leaf that shares the elements, and what the program has hung on the tensor."""
    made = self.detach()
    made.__class__ = type(self)
    vars(made).update(extras_of(self))
    return made.requires_grad_(self.requires_grad)


def contains(self: Tensor, element: Any) -> bool:
    """Whether an element equals `element`, a number or a tensor that broadcasts. Waits for the elements."""
    if not isinstance(element, (Tensor, numbers.Number, np.generic)):
        raise DTypeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")
    return bool((self == element).any())  # pyright: ignore[reportAttributeAccessIssue]  derived from the table


def wrapped(self: Tensor, array: np.ndarray[Any, Any], context: Any = None, return_scalar: bool = False) -> Tensor:
    """What NumPy functions of tensors return: a tensor."""
    del context, return_scalar
    return from_host(array, self.device)
