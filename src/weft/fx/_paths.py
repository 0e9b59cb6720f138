"""Attributes of modules by dotted paths, as nodes name them."""

from __future__ import annotations

from weft._base.types import AttributeValue
from weft._tensor.tensor import Tensor
from weft.errors import LacksAttributeError
from weft.nn._module import Module
from weft.nn._parameter import Parameter


def attribute_at(holder: object, path: str) -> AttributeValue:
    """The attribute at a path; `AttributeError` if there is none."""
    for name in path.split("."):
        if not hasattr(holder, name):
            raise LacksAttributeError(f"'{type(holder).__name__}' object has no attribute '{name}'")
        holder = getattr(holder, name)
    return holder


def has_attribute_at(holder: object, path: str) -> bool:
    """Whether there is an attribute at a path."""
    try:
        attribute_at(holder, path)
    except AttributeError:
        return False
    return True


def assign_at(module: Module, path: str, value: AttributeValue) -> None:
    """Set the attribute at a path, with empty modules above it where there are none; tensors become buffers."""
    *above, name = path.split(".")
    for part in above:
        if not isinstance(getattr(module, part, None), Module):
            setattr(module, part, Module())
        module = getattr(module, part)
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        module.register_buffer(name, value)
    else:
        setattr(module, name, value)
