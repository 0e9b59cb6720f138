"""Printing, as PyTorch prints."""

from __future__ import annotations

from weft._tensor.tensor import Tensor


def show(tensor: Tensor) -> str:
    return f"tensor({tensor.detach().numpy()!r})"
