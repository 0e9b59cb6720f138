"""Modules that contain parameters and other objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from weft._base.guards import is_iterable
from weft._base.types import Arg, AttributeValue
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, MemberError, ModuleError
from weft.nn._containers import pairs, position
from weft.nn._module import Module
from weft.nn._parameter import Parameter

_L = TypeVar("_L", bound="ParameterList")


def _as_parameter(value: AttributeValue) -> AttributeValue:
    """A plain tensor as a parameter; other objects as they are."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _described(name: object, value: AttributeValue, plain: bool) -> str:
    if not isinstance(value, Tensor):
        return f"  ({name}): Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    sizes = "x".join(map(str, value.shape))
    type_name = str(value.dtype) if plain else value.type()
    return f"  ({name}): {kind} containing: [{type_name} of size {sizes}]"


class ParameterList(Module):
    """Parameters in a list. Plain tensors become parameters; other objects are kept as they are."""

    def __init__(self, values: Iterable[AttributeValue] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[AttributeValue]:
        return iter(self[at] for at in range(len(self)))

    def __getitem__(self, index: int | slice) -> AttributeValue:
        if isinstance(index, slice):
            return type(self)([self[at] for at in range(len(self))[index]])
        return getattr(self, str(position(index, len(self))))

    def __setitem__(self, index: int, value: AttributeValue) -> None:
        setattr(self, str(position(index, len(self))), _as_parameter(value))

    def append(self: _L, value: AttributeValue) -> _L:
        """Add one object at the end; returns the list."""
        self._size += 1
        self[-1] = value
        return self

    def extend(self: _L, values: Iterable[AttributeValue]) -> _L:
        """Add objects at the end; returns the list."""
        if not is_iterable(values) or isinstance(values, Tensor):
            raise ArgumentError(
                f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}"
            )
        for value in list(values):
            self.append(value)
        return self

    def __iadd__(self: _L, values: Iterable[AttributeValue]) -> _L:
        return self.extend(values)

    def __call__(self, *args: Arg, **kwargs: Arg) -> Any:
        raise ModuleError("ParameterList should not be called.")

    def extra_repr(self) -> str:
        """One line per object."""
        return "\n".join(_described(at, value, plain=True) for at, value in enumerate(self))


def _require_string(key: object) -> None:
    if not isinstance(key, str):
        raise ArgumentError(
            "Index given to ParameterDict cannot be used as a key as it is not a string "
            f"(type is '{type(key).__name__}')."
        )


class ParameterDict(Module):
    """Parameters by name. Plain tensors become parameters; other objects are kept as they are."""

    def __init__(
        self, parameters: Mapping[str, AttributeValue] | Iterable[tuple[str, AttributeValue]] | None = None
    ) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> AttributeValue:
        _require_string(key)
        if key not in self._keys:
            raise MemberError(f"'{self._get_name()}' object has no attribute '{key}'")
        return getattr(self, key)

    def __setitem__(self, key: str, value: AttributeValue) -> None:
        _require_string(key)
        self._keys[key] = None
        setattr(self, key, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, AttributeValue]]:
        """Names and objects."""
        return [(key, self[key]) for key in self._keys]

    def values(self) -> Iterable[AttributeValue]:
        """The objects."""
        return [self[key] for key in self._keys]

    def get(self, key: str, default: AttributeValue = None) -> AttributeValue:
        """The object of a name, or `default`."""
        return self[key] if key in self._keys else default

    def setdefault(self, key: str, default: AttributeValue = None) -> AttributeValue:
        """The object of a name, which becomes `default` if there was none."""
        if key not in self._keys:
            self[key] = default
        return self[key]

    def pop(self, key: str) -> AttributeValue:
        """Take one object out, and return it."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, AttributeValue]:
        """Take the last object out, and return its name and it."""
        if not self._keys:
            raise KeyError("popitem(): dictionary is empty")
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def copy(self) -> ParameterDict:
        """A new container with the same objects."""
        return ParameterDict(self.items())

    def fromkeys(self, keys: Iterable[str], default: AttributeValue = None) -> ParameterDict:
        """A new container with `default` under every name."""
        return ParameterDict((key, default) for key in keys)

    def clear(self) -> None:
        """Take all objects out."""
        for key in list(self._keys):
            del self[key]

    def update(self, parameters: Mapping[str, AttributeValue] | Iterable[tuple[str, AttributeValue]]) -> None:
        """Add objects from a mapping or from pairs of name and object."""
        for name, value in pairs("ParameterDict", parameters):
            self[name] = value

    def extra_repr(self) -> str:
        """One line per object."""
        return "\n".join(_described(name, value, plain=False) for name, value in self.items())
