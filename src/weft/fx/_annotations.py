"""Annotations of functions, as types of nodes."""

from __future__ import annotations

from typing import Any

from weft._tensor.tensor import Tensor


def annotation_of(function: Any, name: str) -> Any:
    """The annotation of a parameter or of the result. Of those of this package, which are texts, only `Tensor`."""
    annotation = getattr(function, "__annotations__", {}).get(name)
    if isinstance(annotation, str) and str(function.__module__).startswith("weft."):
        return Tensor if annotation == "Tensor" else None
    return annotation
