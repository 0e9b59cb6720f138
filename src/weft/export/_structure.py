"""Structures of arguments and results as JSON: containers, tensors by number, and constants.

They are saved with a program, so that its results have the same structure when it runs in another process.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from weft._base.guards import is_a, is_dict, is_list, is_list_or_tuple
from weft._base.types import Json, PyTree
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ProgramError

Structure = dict[str, Any]
"""One of {"tensor": number}, {"value": constant}, {"list": parts}, {"tuple": parts}, {"dict": [[key, part], …]}.

A registered dataclass is a dict with a further entry: {"dict": …, "class": name}.
"""

# no cell: read where files are loaded, which is no part of a capture
_classes: dict[str, type[Any]] = {}


def register_dataclass(cls: type, *, serialized_type_name: str | None = None) -> None:
    """Let arguments and results of exported programs be of a dataclass, under this name in files.

    Dataclasses that are not registered become dicts: the function gets dicts, and the program takes and returns dicts.
    """
    if not is_a(cls, type) or not is_dataclass(cls):
        raise ArgumentError(f"Only dataclasses can be registered with this function: {cls}")
    _classes[serialized_type_name or f"{cls.__module__}.{cls.__qualname__}"] = cls


def parts_of(thing: PyTree) -> Iterator[tuple[Hashable, PyTree]]:
    """What a container contains, by key."""
    if is_dict(thing):
        yield from thing.items()
    elif is_list_or_tuple(thing):
        yield from enumerate(thing)
    elif is_dataclass(thing) and not isinstance(thing, type):
        yield from [(field.name, getattr(thing, field.name)) for field in fields(thing)]


_CONSTANTS = (bool, int, float, str, type(None))


def flatten(thing: PyTree, tensors: list[Tensor], path: str) -> Structure:
    """The structure of nested containers, whose tensors are appended to `tensors`.

    Named tuples become tuples, and dataclasses dicts. `path` names `thing` in errors.
    """
    if isinstance(thing, Tensor):
        tensors.append(thing)
        return {"tensor": len(tensors) - 1}
    if isinstance(thing, _CONSTANTS):
        return {"value": thing}
    if is_list_or_tuple(thing):
        kind = "list" if is_list(thing) else "tuple"
        return {kind: [flatten(item, tensors, f"{path}[{at}]") for at, item in enumerate(thing)]}
    if is_dict(thing) or (is_dataclass(thing) and not isinstance(thing, type)):
        content = dict(parts_of(thing))
        if all(isinstance(key, (str, int)) for key in content):
            parts = [[key, flatten(item, tensors, f"{path}[{key!r}]")] for key, item in content.items()]
            name = next((name for name, cls in _classes.items() if type(thing) is cls), None)
            return {"dict": parts} if name is None else {"dict": parts, "class": name}
    raise ArgumentError(
        f"{path} is a {type(thing).__name__}: inputs and outputs of an exported program are tensors, numbers, strings, "
        "None, and lists, tuples, dicts and dataclasses of these"
    )


def rebuild(structure: Structure, tensors: Sequence[object]) -> PyTree:
    """The containers of a structure around these tensors."""
    kind, content = _head(structure)
    if kind == "tensor":
        return tensors[content]
    if kind == "value":
        return content
    if kind == "dict":
        parts = {key: rebuild(part, tensors) for key, part in content}
        return _class_of(structure)(**parts) if "class" in structure else parts
    parts = [rebuild(part, tensors) for part in content]
    return parts if kind == "list" else tuple(parts)


def check_structure(structure: Structure, tensors: int) -> None:
    """Raise, for example `ValueError`, unless a structure from a file has known kinds and refers to so many tensors."""
    if not structure:
        raise ValueError("a structure is empty")
    kind, content = _head(structure)
    if kind == "tensor":
        if type(content) is not int or not 0 <= content < tensors:
            raise ValueError(f"a structure has tensor {content!r} of {tensors}")
    elif kind in ("list", "tuple", "dict"):
        for part in content:
            _, inner = part if kind == "dict" else (None, part)
            check_structure(inner, tensors)
    elif kind != "value":
        raise ValueError(f"a structure has an unknown kind {kind!r}")


def matched(expected: Structure, value: object, tensors: list[tuple[str, Tensor]], path: str, name: str) -> None:
    """Append the tensors of `value` to `tensors`, each with its path, in order; `ProgramError` if it does not match."""
    kind, content = _head(expected)
    if "class" in expected:
        if not isinstance(value, _class_of(expected)):
            raise ProgramError(
                f"{name}: Expected input at {path} to be of class {expected['class']}, but got {type(value).__name__}"
            )
        value = dict(parts_of(value))
    if kind == "tensor":
        if not isinstance(value, Tensor):
            raise ProgramError(f"{name}: Expected input at {path} to be a tensor, but got {type(value).__name__}")
        tensors.append((path, value))
    elif kind == "value":
        # `value == value` lets NaN match itself; `True` is no 1.
        if type(value) is not type(content) or (value != content and value == value):
            raise ProgramError(
                f"{name}: Expected input at {path} to be equal to {content!r}, but got {_short(value)}; what is no "
                "tensor is a constant of an exported program, so pass a tensor where it was exported, or export again"
            )
    elif kind == "dict":
        keys = [key for key, _ in content]
        if not is_dict(value) or {*value} != {*keys}:
            raise ProgramError(
                f"{name}: Expected input at {path} to be a dict with keys {keys}, but got {_form(value)}"
            )
        for key, part in content:
            matched(part, value[key], tensors, f"{path}[{key!r}]", name)
    else:
        if not is_list_or_tuple(value) or is_list(value) != (kind == "list") or len(value) != len(content):
            raise ProgramError(
                f"{name}: Expected input at {path} to be a {kind} of {len(content)} items, but got {_form(value)}"
            )
        for at, part in enumerate(content):
            matched(part, value[at], tensors, f"{path}[{at}]", name)


def _head(structure: Structure) -> tuple[str, Json]:
    return next(iter(structure.items()))


def _class_of(structure: Structure) -> type:
    name = structure["class"]
    if name not in _classes:
        raise ProgramError(
            f"the program takes or returns the dataclass {name}, which this process does not know; call "
            "weft.export.register_dataclass with it, and with the same serialized_type_name, first"
        )
    return _classes[name]


def paths(structure: Structure, path: str) -> Iterator[str]:
    """The path of each tensor, in order."""
    kind, content = _head(structure)
    if kind == "tensor":
        yield path
    elif kind == "dict":
        for key, part in content:
            yield from paths(part, f"{path}.{key}" if path else str(key))
    elif kind != "value":
        for at, part in enumerate(content):
            yield from paths(part, f"{path}.{at}" if path else str(at))


def constants(structure: Structure, path: str) -> Iterator[tuple[str, Json]]:
    """The path and the value of each constant, in order."""
    kind, content = _head(structure)
    if kind == "value":
        yield path, content
    elif kind == "dict":
        for key, part in content:
            yield from constants(part, f"{path}[{key!r}]")
    elif kind != "tensor":
        for at, part in enumerate(content):
            yield from constants(part, f"{path}[{at}]")


def _short(thing: PyTree) -> str:
    return f"a tensor of shape {list(thing.shape)}" if isinstance(thing, Tensor) else repr(thing)[:60]


def _form(thing: PyTree) -> str:
    if is_dict(thing):
        return f"one with keys {list(thing)}"
    if is_list_or_tuple(thing):
        return f"a {type(thing).__name__} of {len(thing)} items"
    return _short(thing)
