"""Schemas: an operator's parameters and results as PyTorch writes them, `foo(Tensor x, int n=1) -> Tensor`."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from weft._base.device import device
from weft._base.dtype import DType
from weft._base.types import Annotation, AnyCallable, Arg
from weft._tensor.tensor import Tensor
from weft.errors import SchemaError
from weft.ops._kinds import REQUIRED, Kind, Param
from weft.ops._schema import PARAM, SCHEMA, split, value_of


@dataclass(frozen=True, slots=True)
class Schema:
    """The name, the overload ("" for the default one), the parameters, those written to, and the types of results."""

    name: str
    overload: str
    params: tuple[Param, ...]
    mutates: tuple[str, ...]
    returns: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return self.text


_TYPES = {
    "Tensor", "int", "SymInt", "float", "bool", "str", "Scalar", "ScalarType", "Device", "Layout", "MemoryFormat",
}  # fmt: skip


def parsed(text: str) -> Schema:
    """The schema that a text describes; `RuntimeError` if it describes none."""
    whole = SCHEMA.fullmatch(text)
    if whole is None:
        raise SchemaError(f"expected a schema such as 'foo(Tensor x, int n=1) -> Tensor', got {text!r}")
    params: list[Param] = []
    mutates: list[str] = []
    only_by_keyword = False
    for part in split(whole["params"]):
        if part == "*":
            only_by_keyword = True
            continue
        param = PARAM.fullmatch(part)
        if param is None or param["name"] is None or param["type"] not in _TYPES:
            raise SchemaError(f"{text!r}: expected a parameter such as 'Tensor x' or 'int n=1', got {part!r}")
        params.append(_param(param, only_by_keyword))
        if "!" in (param["alias"] or ""):
            mutates.append(param["name"])
    inner = whole["returns"]
    returns = split(inner[1:-1] if inner.startswith("(") and inner.endswith(")") else inner)
    return Schema(whole["name"], whole["overload"] or "", tuple(params), tuple(mutates), tuple(returns), text.strip())


def _param(match: re.Match[str], only_by_keyword: bool) -> Param:
    suffix, default = match["suffix"], match["default"]
    kind = Kind.STATIC
    if match["type"] == "Tensor":
        kind = Kind.ARRAYS if "[" in suffix else Kind.ARRAY
    value = REQUIRED if default is None else _value(default)
    optional = suffix.endswith("?")
    hint = "" if "[" in suffix else _CONVERTED.get(match["type"], "")
    return Param(match["name"], kind, value, only_by_keyword, optional, hint and hint + " | None" * optional)


_CONVERTED = {"int": "int", "SymInt": "int", "float": "float", "bool": "bool", "str": "str"}
"""Annotations for which arguments are checked and converted, by the schema's type."""


def _value(text: str) -> Arg:
    value = value_of(text)
    return tuple(value) if isinstance(value, list) else value


# --- from annotations ---------------------------------------------------------------------------------------------

_NAMES: dict[Any, str] = {
    Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str", DType: "ScalarType", device: "Device",
}  # fmt: skip


def infer_schema(
    prototype_function: AnyCallable,
    /,
    *,
    mutates_args: str | Iterable[str],
    op_name: str | None = None,
    tags: object = (),
) -> str:
    """The schema of a function with annotations, such as `(Tensor x, SymInt n=1) -> Tensor`.

    `mutates_args` names the tensors that it writes to, or is "unknown" for all. `ValueError` for annotations that no
    schema can have.
    """
    del tags
    signature = inspect.signature(prototype_function, eval_str=True)

    def refuse(what: str) -> SchemaError:
        return SchemaError(f"infer_schema(func): {what} Got func with signature {signature}")

    every = mutates_args == "unknown"
    mutated = set[str]() if every else {mutates_args} if isinstance(mutates_args, str) else set(mutates_args)
    parts: list[str] = []
    for at, p in enumerate(signature.parameters.values()):
        if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            raise refuse("We do not support positional-only args, varargs, or varkwargs.")
        if p.annotation is p.empty:
            raise refuse(f"Parameter {p.name} must have a type annotation.")
        if p.kind is p.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        name = _type_name(p.annotation)
        if name is None:
            raise refuse(f"Parameter {p.name} has unsupported type {p.annotation}.")
        if name.startswith("Tensor") and (every or p.name in mutated):
            name = f"Tensor(a{at}!){name.removeprefix('Tensor')}"
        elif p.name in mutated:
            raise refuse(f"Parameter {p.name} is in mutable_args but only Tensors can be mutated.")
        parts.append(f"{name} {p.name}" + ("" if p.default is p.empty else f"={_default_text(p.default)}"))
    unknown = mutated - set(signature.parameters)
    if unknown:
        raise refuse(
            f"mutates_args should contain the names of all args that the custom op mutates, but {sorted(unknown)} are "
            "no parameters."
        )
    returns = _returns(signature.return_annotation)
    if returns is None:
        raise refuse(f"Return has unsupported type {signature.return_annotation}.")
    return f"{op_name or ''}({', '.join(parts)}) -> {returns}"


def _type_name(hint: Annotation) -> str | None:
    """The schema's name of an annotated type; None if there is none."""
    if hint in _NAMES:
        return _NAMES[hint]
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = [part for part in args if part is not type(None)]
        if set(inner) <= {int, float, bool, complex} and len(inner) > 1:
            name = "Scalar"
        else:
            name = _type_name(inner[0]) if len(inner) == 1 else None
        return name and name + "?" * (len(inner) < len(args))
    if origin in (list, tuple, Sequence) and args:
        inner = {part for part in args if part is not ...}
        name = _type_name(inner.pop()) if len(inner) == 1 else None
        return name and f"{name}[]"
    return None


def _default_text(default: object) -> str:
    if isinstance(default, str):
        return f'"{default}"'
    if isinstance(default, tuple):
        return str(list(default))
    return str(default).removeprefix("torch.")


def _returns(hint: Annotation) -> str | None:
    if hint is None or hint is type(None):
        return "()"
    if typing.get_origin(hint) is tuple:
        names = [_type_name(part) for part in typing.get_args(hint)]
        return None if None in names else f"({', '.join(map(str, names))})"
    return None if hint is inspect.Signature.empty else _type_name(hint)
