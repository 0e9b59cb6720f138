"""Tensors in Python's and NumPy's protocols: copies, pickles, `in`, and results of NumPy functions."""

from __future__ import annotations

import copy
import numbers
from typing import Any

import numpy as np

from weft._tensor.convert import from_host
from weft._tensor.tensor import Tensor
from weft.errors import DTypeError, GradientError

_STATE = frozenset({"_value", "_alias", "_views", "_tape", "_version"})


def _attributes(tensor: Tensor) -> dict[str, Any]:
    """What the program has hung on a tensor."""
    return {name: value for name, value in vars(tensor).items() if name not in _STATE}


def _made(kind: type[Tensor], source: Tensor, requires_grad: bool) -> Tensor:
    """`source`, which is nobody else's, as a leaf of a class of tensors."""
    source.__class__ = kind
    return source.requires_grad_(requires_grad)


def deepcopied(self: Tensor, memo: dict[int, Any]) -> Tensor:
    """`copy.deepcopy` of a leaf, with its gradient. Values are immutable, so no element is copied."""
    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        raise GradientError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  "
            "If you were attempting to deepcopy a module, take detach() of the tensors that it keeps."
        )
    made = memo[id(self)] = _made(type(self), self.detach().clone(), self.requires_grad)
    made.grad = copy.deepcopy(self.grad, memo)
    vars(made).update(copy.deepcopy(_attributes(self), memo))
    return made


def copied(self: Tensor) -> Tensor:
    """`copy.copy`: a leaf that shares the elements."""
    made = _made(type(self), self.detach(), self.requires_grad)
    vars(made).update(_attributes(self))
    return made


def _rebuilt(kind: type[Tensor], array: np.ndarray[Any, Any], device: str, requires_grad: bool) -> Tensor:
    return _made(kind, from_host(array, device), requires_grad)


def reduced(self: Tensor, protocol: Any) -> tuple[Any, ...]:
    """Pickles hold the elements as a NumPy array, and come back as leaves on the same device."""
    del protocol
    arguments = (type(self), self.detach()._host(), str(self.device), self.requires_grad)
    return _rebuilt, arguments, _attributes(self) or None


def contains(self: Tensor, element: Any) -> bool:
    """Whether an element equals `element`, a number or a tensor that broadcasts. Waits for the elements."""
    if not isinstance(element, (Tensor, numbers.Number, np.generic)):
        raise DTypeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")
    return bool((self == element).any())  # pyright: ignore[reportAttributeAccessIssue]  derived from the table


def wrapped(self: Tensor, array: np.ndarray[Any, Any], context: Any = None, return_scalar: bool = False) -> Tensor:
    """What NumPy functions of tensors return: a tensor."""
    del context, return_scalar
    return from_host(array, self.device)


MEMBERS = {
    "__deepcopy__": deepcopied, "__copy__": copied, "__reduce_ex__": reduced, "__contains__": contains,
    "__array_wrap__": wrapped,
}  # fmt: skip
"""Methods of `Tensor` by name."""
