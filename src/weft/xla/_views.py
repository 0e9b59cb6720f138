"""Tensors that share elements."""

from __future__ import annotations

from weft._tensor.alias import owner_of
from weft._tensor.tensor import Tensor
from weft.errors import XlaError
from weft.xla._nested import selected


def check_view_sharing(obj: object) -> None:
    """Raise `RuntimeError` if two tensors in a nested structure share their elements.

    If such tensors are saved and loaded, or moved to another device, one by one, they no longer do.
    """
    owners: dict[int, Tensor] = {}
    for tensor in selected(obj, lambda value: isinstance(value, Tensor)):
        other = owners.setdefault(id(owner_of(tensor)), tensor)
        if other is not tensor:
            raise XlaError(f"{_named('Tensor', tensor)} is sharing a view with {_named('tensor', other)}")


def _named(word: str, tensor: Tensor) -> str:
    return f"{word} ID {id(tensor)} ({tensor.dtype}{list(tensor.shape)})"
