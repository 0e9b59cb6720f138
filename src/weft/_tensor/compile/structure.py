"""Structures of arguments and results: flattening and rebuilding nested containers.

`jax.tree` does not serve here: it sorts the keys of dicts, so the captured function would see another order, and it
takes objects of subclasses of `list` and `dict` for leaves, so tensors in them would not be found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TypeAlias

import numpy as np

from weft._base.device import device
from weft._base.dtype import DType
from weft._base.guards import DICT, LIST_OR_TUPLE, SLICE
from weft._base.types import Arg, PyTree
from weft._tensor.base import TensorBase
from weft._tensor.tensor import Tensor


class _TensorSlot:
    """The place of a tensor in a structure."""

    def __repr__(self) -> str:
        return "<tensor>"


SLOT = _TensorSlot()


class _Constant:
    """A hashable leaf that is not a number."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Constant) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


class ByIdentity(_Constant):
    """An object that is compared by identity, and kept alive."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


Part: TypeAlias = Arg
"""A part of a description: `SLOT`, a `_Constant`, or a pair of a class and its parts. Only `rebuild` looks into one."""


def flatten(structure: Arg, tensors: list[Tensor], objects: list[object]) -> Part:
    """A hashable description of nested containers, with `SLOT` for each tensor.

    The tensors are appended to `tensors`, and leaves that are neither numbers nor texts to `objects`.
    """
    if isinstance(structure, Tensor):
        tensors.append(structure)
        return SLOT
    kind: type = type(structure)  # pyright: ignore[reportUnknownVariableType]  of anything
    if isinstance(structure, LIST_OR_TUPLE):
        return (kind, tuple([flatten(item, tensors, objects) for item in structure]))
    if isinstance(structure, DICT):
        return (kind, tuple([(k, flatten(v, tensors, objects)) for k, v in structure.items()]))
    if isinstance(structure, (bool, int, float, complex)):
        return (kind, structure)
    if isinstance(structure, SLICE):
        parts = (structure.start, structure.stop, structure.step)
        return (kind, tuple([flatten(part, tensors, objects) for part in parts]))
    if not isinstance(structure, (str, bytes, type(None))):
        objects.append(structure)
    try:
        hash(structure)
    except TypeError:
        return ByIdentity(structure)
    return _Constant(structure)


def flatten_result(
    structure: Arg, tensors: list[Tensor], objects: list[object], outside: Callable[[object], bool]
) -> Part:
    """The description of a function's result. Objects from `outside` are kept, and records are flattened."""
    if isinstance(structure, Tensor):
        tensors.append(structure)
        return SLOT
    if outside(structure):
        return ByIdentity(structure)
    kind: type = type(structure)  # pyright: ignore[reportUnknownVariableType]  of anything
    if isinstance(structure, LIST_OR_TUPLE):
        return (kind, tuple([flatten_result(item, tensors, objects, outside) for item in structure]))
    if isinstance(structure, DICT):
        return (kind, tuple([(k, flatten_result(v, tensors, objects, outside)) for k, v in structure.items()]))
    if is_dataclass(structure) and not isinstance(structure, type):
        held = [(f.name, getattr(structure, f.name)) for f in fields(structure)]
        return (kind, tuple([(name, flatten_result(v, tensors, objects, outside)) for name, v in held]))
    return flatten(structure, tensors, objects)


def rebuild(part: Part, tensors: Iterator[TensorBase]) -> PyTree:
    """The inverse of `flatten_result`, given the tensors."""
    if part is SLOT:
        return next(tensors)
    if isinstance(part, _Constant):
        return part.value
    kind, content = part
    if issubclass(kind, DICT):
        return _mapping(kind, [(k, rebuild(v, tensors)) for k, v in content])
    if issubclass(kind, LIST_OR_TUPLE):
        items = [rebuild(item, tensors) for item in content]
        return kind(*items) if hasattr(kind, "_fields") else kind(items)
    if kind is slice:
        return slice(*[rebuild(item, tensors) for item in content])
    if is_dataclass(kind):
        record = _blank(kind)
        for name, v in content:
            object.__setattr__(record, name, rebuild(v, tensors))
        return record
    return content


def _blank(kind: Arg) -> PyTree:
    return object.__new__(kind)


def _mapping(kind: type, items: list[tuple[object, PyTree]]) -> PyTree:
    mapping = kind()
    mapping.update(items)
    return mapping


def is_made_anew(thing: object) -> bool:
    """Whether a replay may return this object where the function has created it, because it is immutable."""
    return isinstance(thing, (DType, device, Enum, type, range, type(...), np.generic, np.dtype))


def same_things(old: Sequence[object], new: Sequence[object]) -> bool:
    """Whether two sequences hold the same objects."""
    return len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True))
