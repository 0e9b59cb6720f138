"""Copies of tensors for `copy.deepcopy` and `pickle`."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from weft._base.state import using
from weft._dispatch import apply
from weft._lazy.realize import array_of
from weft._tensor.convert import from_host
from weft._tensor.tensor import Tensor, wrap
from weft._tensor.view import make_view, own
from weft.errors import GradientError

_HANDLE = ("_value", "_alias", "_views", "_tape", "_version")
"""What makes the handle; all other attributes are the user's and are copied with it."""


def handle_on(kind: type[Tensor], source: Tensor, requires_grad: bool) -> Tensor:
    """A new leaf of a tensor class with the elements of `source`."""
    made: Tensor = object.__new__(kind)
    made._value = own(source._read())
    return made.requires_grad_(requires_grad)


def extras_of(tensor: Tensor) -> dict[str, Any]:
    """The attributes that users (and subclasses) have put on a tensor."""
    return {name: value for name, value in tensor.__dict__.items() if name not in _HANDLE}


def deepcopy(self: Tensor, memo: dict[int, Any]) -> Tensor:
    """A leaf with the same elements, gradient and attributes; `RuntimeError` for a result of operators.

    The copy of a view is one of the copy of its base.
    """
    found = memo.get(id(self))
    if found is not None:
        return found
    if not self.is_leaf:
        raise GradientError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment. "
            "Deep-copy `tensor.detach()` instead."
        )
    made = _copied_view(self, memo)
    if made is None:
        made = handle_on(type(self), self, self.requires_grad)
    memo[id(self)] = made
    made.__dict__.update(extras_of(self))
    if self.grad is not None:
        made.grad = deepcopy(self.grad, memo)
    return made


def _copied_view(self: Tensor, memo: dict[int, Any]) -> Tensor | None:
    """The copy of a view, or None where it owns its elements or cannot follow its base."""
    alias = self._alias
    if alias is None or type(self) is not Tensor or self.requires_grad or not alias.base.is_leaf:
        return None
    made = copy.deepcopy(alias.base, memo)
    with using(grad=False):
        for call, others in alias.steps:
            made = make_view(wrap(apply(call, (made._read(), *others))[0]), made, call, others)
    return made


def reduce(self: Tensor, protocol: int) -> tuple[Any, ...]:
    """How a tensor is pickled: its elements as a NumPy array, outside of the tape."""
    del protocol
    elements = np.asarray(array_of(self._read()))
    return rebuild, (type(self), elements, str(self.device), self.requires_grad, extras_of(self))


def rebuild(
    kind: type[Tensor], elements: np.ndarray[Any, Any], device: str, requires_grad: bool, extras: dict[str, Any]
) -> Tensor:
    """The tensor that `reduce` took apart."""
    made = handle_on(kind, from_host(elements, device), requires_grad)
    made.__dict__.update(extras)
    return made
