"""Modules that contain other modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import index as as_int
from typing import Any, Self, SupportsIndex, TypeVar

from weft._base.guards import is_a, is_dict, is_iterable
from weft._base.types import Arg, AttributeValue, Result
from weft.errors import ArgumentError, DimError, PreconditionError, ValueRangeError
from weft.nn._lookup import AnyModule as AnyModule
from weft.nn._lookup import indented
from weft.nn._module import Module

_S = TypeVar("_S", bound="Sequential")
_L = TypeVar("_L", bound="ModuleList")

Modules = Mapping[str, Module] | Iterable[tuple[str, Module]]
"""Modules by name, or pairs of name and module."""


def position(index: SupportsIndex, size: int) -> int:
    """An index counted from the front; `IndexError` if it is out of range."""
    value = as_int(index)
    if not -size <= value < size:
        raise DimError(f"index {value} is out of range")
    return value % size


class _IndexedModules(Module):
    """Modules in order, named "0", "1", and so on."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[AnyModule]:
        return iter(self._modules.values())

    def _renumber(self, modules: Iterable[Module | None]) -> None:
        self._modules = {str(at): module for at, module in enumerate(modules)}

    def _as_list(self) -> list[AnyModule]:
        return list(self._modules.values())

    def __getitem__(self, index: int | slice) -> AttributeValue:
        if isinstance(index, slice):
            return type(self)(*self._for_init(self._as_list()[index]))
        return self._as_list()[position(index, len(self))]

    def _for_init(self, modules: list[Module]) -> Iterable[Arg]:
        return (modules,)

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, list(self._modules)[position(index, len(self))], module)

    def __delitem__(self, index: int | slice) -> None:
        modules = self._as_list()
        del modules[index if isinstance(index, slice) else position(index, len(self))]
        self._renumber(modules)

    def _insert(self, index: int, module: Module) -> None:
        modules = self._as_list()
        modules.insert(index, module)
        self._renumber(modules)

    def append(self, module: Module) -> Self:
        """Add a module at the end; returns the container."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end; returns the container."""
        if not is_iterable(modules):
            name = type(self).__name__
            raise ArgumentError(f"{name}.extend should be called with an iterable, but got {type(modules).__name__}")
        for module in list(modules):
            self.append(module)
        return self

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]


class Sequential(_IndexedModules):
    """Modules called one after another, given in order or as a dict by name."""

    def __init__(self, *args: Arg) -> None:
        super().__init__()
        if len(args) == 1 and is_dict(args[0]):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for at, module in enumerate(args):
                self.add_module(str(at), module)

    def forward(self, input: Arg) -> Result:
        """The result of the last module."""
        for module in self:
            input = module(input)
        return input

    def __getitem__(self, index: int | slice) -> AttributeValue:
        if isinstance(index, slice):
            return type(self)(dict(list(self._modules.items())[index]))
        return super().__getitem__(index)

    def __delitem__(self, index: int | slice) -> None:
        if not isinstance(index, slice):
            index = position(index, len(self))
        super().__delitem__(index)

    def insert(self: _S, index: int, module: Module) -> _S:
        """Put a module in front of the one at `index`."""
        if not is_a(module, Module):
            raise PreconditionError(f"module should be of type: {Module}")
        if not -len(self) <= index <= len(self):
            raise DimError(f"Index out of range: {index}")
        self._insert(index, module)
        return self

    def pop(self, key: int | slice) -> Module:
        """Take one module out, and return it."""
        module = self[key]
        del self[key]
        return module

    def __add__(self, other: Sequential) -> Sequential:
        return Sequential(*self, *_sequential(other))

    def __iadd__(self: _S, other: Sequential) -> _S:
        return self.extend(list(_sequential(other)))

    def __mul__(self, times: int) -> Sequential:
        return Sequential(*(self._as_list() * self._factor(times)))

    __rmul__ = __mul__

    def __imul__(self: _S, times: int) -> _S:
        return self.extend(self._as_list() * (self._factor(times) - 1))

    def _factor(self, times: object) -> int:
        if not isinstance(times, int):
            raise ArgumentError(f"unsupported operand type(s) for *: {type(self)} and {type(times)}")
        if times <= 0:
            raise ValueRangeError(f"Non-positive multiplication factor {times} for {type(self)}")
        return times


def _sequential(other: object) -> Sequential:
    if not isinstance(other, Sequential):
        raise ValueRangeError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
    return other


class ModuleList(_IndexedModules):
    """Modules in a list. It has no `forward`: the caller calls them."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def insert(self, index: int, module: Module) -> None:
        """Put a module in front of the one at `index`."""
        self._insert(index, module)

    def pop(self, key: int | slice) -> Module:
        """Take one module (or a slice of them) out, and return it."""
        module = self[key]
        del self[key]
        return module

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList(chain(self, other))

    def __iadd__(self: _L, modules: Iterable[Module]) -> _L:
        return self.extend(modules)

    def __repr__(self) -> str:
        """As for `Module`, with consecutive equal modules on one line."""
        runs: list[list[Any]] = []  # [first, last, text]
        for at, text in enumerate(map(repr, self)):
            if runs and runs[-1][2] == text:
                runs[-1][1] = at
            else:
                runs.append([at, at, text])
        if not runs:
            return f"{self._get_name()}()"
        lines: list[str] = []
        for first, last, text in runs:
            head = f"({first}): " if first == last else f"({first}-{last}): {last - first + 1} x "
            lines.append(head + indented(text))
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"


class ModuleDict(Module):
    """Modules by name. It has no `forward`: the caller calls them."""

    def __init__(self, modules: Modules | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> AnyModule:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def values(self) -> Iterable[AnyModule]:
        """The modules."""
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, AnyModule]]:
        """Names and modules."""
        return self._modules.items()

    def clear(self) -> None:
        """Take all modules out."""
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Take one module out, and return it."""
        module = self[key]
        del self[key]
        return module

    def update(self, modules: Modules) -> None:
        """Add modules from a mapping or from pairs of name and module."""
        for name, module in pairs("ModuleDict", modules):
            self[name] = module


def pairs(owner: str, items: Arg) -> list[tuple[str, Arg]]:
    """Pairs of name and object from a mapping or a sequence of pairs."""
    if hasattr(items, "items"):
        return list(items.items())
    if not is_iterable(items):
        raise ArgumentError(
            f"{owner}.update should be called with an iterable of key/value pairs, but got {type(items).__name__}"
        )
    entries = list(items)
    for at, item in enumerate(entries):
        if not is_iterable(item):
            raise ArgumentError(f"{owner} update sequence element #{at} should be Iterable; is{type(item).__name__}")
        if len(list(item)) != 2:
            raise ValueRangeError(f"{owner} update sequence element #{at} has length {len(list(item))}; 2 is required")
    return [(name, item) for name, item in entries]
