"""Tensors in nested structures: mappings, sequences, sets, and objects that hold tensors in their attributes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, TypeGuard

from weft._base.guards import is_list, is_list_or_tuple, is_mapping, is_plain_list
from weft._base.types import AnyCallable, Arg, PyTree

if TYPE_CHECKING:
    from weft._tensor.tensor import Tensor

Select = Callable[[Any], bool]


class DataWrapper:
    """The base of classes that define which of their tensors are moved to a device."""

    def get_tensors(self) -> list[Tensor]:
        """The tensors that are to be moved."""
        raise NotImplementedError(f"{type(self).__name__} is a DataWrapper and must define get_tensors()")

    def from_tensors(self, tensors: Sequence[object]) -> PyTree:
        """What takes the place of this object, given the moved tensors in the order of `get_tensors()`."""
        raise NotImplementedError(f"{type(self).__name__} is a DataWrapper and must define from_tensors(tensors)")


_IMMUTABLE: tuple[type, ...] = (tuple, AbstractSet)
_OPAQUE = (str, bytes, type, FunctionType, MethodType, ModuleType)


def selected(data: PyTree, select: Select) -> list[Arg]:
    """The objects in a structure that `select` chooses, in order; each one once."""
    return _Search(data, select).matches


def replaced(data: PyTree, select: Select, replacements: Callable[[list[Arg]], Iterable[object]]) -> PyTree:
    """A copy of a structure, with what `select` chooses replaced by `replacements(objects)`, one for each, in order.

    Objects are copied only if they hold something that is replaced. What occurs twice is replaced once.
    """
    search = _Search(data, select)
    if not search.matches:
        return _Copy({}, search.holders).of(data)
    fresh = list(replacements(search.matches))
    assert len(fresh) == len(search.matches), "there is one replacement for each object that was found"
    return _Copy({id(old): new for old, new in zip(search.matches, fresh, strict=True)}, search.holders).of(data)


def _children(value: PyTree) -> Iterable[PyTree]:
    """What a structure consists of; nothing for a leaf."""
    if isinstance(value, DataWrapper):
        return value.get_tensors()
    if is_mapping(value):
        return [part for item in value.items() for part in item]
    if is_list_or_tuple(value) or _is_set(value):
        return value
    return _attributes(value).values() if hasattr(value, "__dict__") and not isinstance(value, _OPAQUE) else ()


def _attributes(value: object) -> dict[str, Arg]:
    return vars(value)


def _is_set(value: object) -> TypeGuard[AbstractSet[Arg]]:
    return isinstance(value, AbstractSet)


class _Search:
    """What `select` chooses in a structure, and the ids of the structures that hold some of it."""

    def __init__(self, data: PyTree, select: Select) -> None:
        self._select = select
        self._seen: set[int] = set()
        self.matches: list[Arg] = []
        self.holders: set[int] = set()
        self._visit(data)

    def _visit(self, value: PyTree) -> bool:
        if id(value) in self._seen:
            return id(value) in self.holders
        self._seen.add(id(value))
        if self._select(value):
            self.matches.append(value)
            self.holders.add(id(value))
            return True
        held = [child for child in _children(value) if self._visit(child)]  # visits all
        if held:
            self.holders.add(id(value))
            return True
        return False


class _Copy:
    """Copies of structures, in which objects are replaced by their id."""

    def __init__(self, copies: dict[int, object], holders: set[int]) -> None:
        self._copies = copies
        self._holders = holders

    def of(self, value: PyTree) -> PyTree:
        if id(value) not in self._copies:
            self._copies[id(value)] = self._copied(value)
        return self._copies[id(value)]

    def _copied(self, value: PyTree) -> PyTree:
        is_holder = id(value) in self._holders
        if type(value) is dict or (is_holder and is_mapping(value)):
            return self._of_mapping(value)
        if is_plain_list(value) or (is_holder and is_list(value)):
            fresh = self._copies[id(value)] = copy.copy(value)
            fresh[:] = [self.of(item) for item in value]
            return fresh
        if is_holder and isinstance(value, _IMMUTABLE):
            kind: AnyCallable = value.__class__
            items = [self.of(item) for item in value]
            return kind(*items) if hasattr(value, "_fields") else kind(items)
        if value.__class__ is set:
            return set(value)
        if is_holder and isinstance(value, DataWrapper):
            return value.from_tensors([self.of(tensor) for tensor in value.get_tensors()])
        if is_holder:
            fresh = self._copies[id(value)] = copy.copy(value)
            fresh.__dict__.update({name: self.of(part) for name, part in _attributes(value).items()})
            return fresh
        return value

    def _of_mapping(self, value: PyTree) -> PyTree:
        fresh = self._copies[id(value)] = copy.copy(value)
        fresh.clear()
        for key, item in value.items():
            fresh[self.of(key)] = self.of(item)
        return fresh
