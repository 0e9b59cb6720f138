"""Annotations of functions, as types of nodes."""

from __future__ import annotations

from weft._base.own_names import is_own_module
from weft._base.types import Annotation
from weft._tensor.tensor import Tensor


def annotation_of(function: object, name: str) -> Annotation:
    """The annotation of a parameter or of the result. Of those of this package, which are texts, only `Tensor`."""
    annotation = getattr(function, "__annotations__", {}).get(name)
    if isinstance(annotation, str) and is_own_module(str(function.__module__)):
        return Tensor if annotation == "Tensor" else None
    return annotation
