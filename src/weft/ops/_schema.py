"""What an operator takes and gives, as PyTorch writes it: `aten::mm(Tensor self, Tensor mat2) -> Tensor`."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cached_property

from weft._base.types import Arg
from weft.errors import SchemaError

SCHEMA = re.compile(
    r"\s*(?P<name>[\w:]*)(\.(?P<overload>\w+))?\s*\((?P<params>.*)\)\s*->\s*(?P<returns>.+?)\s*", re.DOTALL
)
PARAM = re.compile(
    r"(?P<type>\w+)(\((?P<alias>[^)]*)\))?(?P<suffix>(\?|\[\d*\])*)(\s+(?P<name>\w+))?(\s*=\s*(?P<default>.+))?",
    re.DOTALL,
)


def split(text: str) -> list[str]:
    """The parts between commas that stand in no brackets and no quotes."""
    parts = re.findall(r"""(?:\[[^\]]*\]|\([^)]*\)|"[^"]*"|'[^']*'|[^,])+""", text)
    return [part.strip() for part in parts if part.strip()]


def value_of(text: str) -> Arg:
    """The default that a schema writes down; a name, such as `contiguous_format`, stays text."""
    text = {"true": "True", "false": "False"}.get(text, text)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        if text.isidentifier():
            return text
        raise SchemaError(f"a default is None, a bool, a number, a str or a list of them, got {text!r}") from None


@dataclass(frozen=True, slots=True)
class AliasInfo:
    """The names of what a tensor shares elements with, and whether it is written to."""

    before_set: frozenset[str]
    is_write: bool

    @property
    def after_set(self) -> frozenset[str]:
        """The same names: no operator changes them."""
        return self.before_set


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter, or a result, of an operator; `type` is a text such as `Tensor`, `Optional[Tensor]`, `List[int]`."""

    name: str
    schema_type: str
    default_value: Arg
    kwarg_only: bool
    alias_info: AliasInfo | None
    _has_default: bool

    @property
    def type(self) -> str:
        """The type as PyTorch prints it; a number stands for each constant of the package."""
        return _printed(self.schema_type, _NUMBERS)

    @property
    def real_type(self) -> str:
        """The type, with `ScalarType`, `Layout` and `MemoryFormat` for constants of the package."""
        return _printed(self.schema_type, _NUMBERS[:2])

    @property
    def is_out(self) -> bool:
        """Whether results are written to it."""
        return self.kwarg_only and self.alias_info is not None and self.alias_info.is_write

    def has_default_value(self) -> bool:
        """Whether calls may leave it out."""
        return self._has_default


_NUMBERS = (("Scalar", "number"), ("SymInt", "int"), ("ScalarType", "int"), ("Layout", "int"), ("MemoryFormat", "int"))


def _printed(text: str, names: tuple[tuple[str, str], ...]) -> str:
    if text.endswith("?"):
        return f"Optional[{_printed(text[:-1], names)}]"
    if text.endswith("]"):
        return f"List[{_printed(text[: text.rindex('[')], names)}]"
    return dict(names).get(text, text)


class FunctionSchema:
    """A schema: `name`, `overload_name`, `arguments`, `returns`; `str(schema)` is its text."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _parts(self) -> re.Match[str]:
        whole = SCHEMA.fullmatch(self._text)
        if whole is None:
            raise SchemaError(f"expected a schema such as 'foo(Tensor x, int n=1) -> Tensor', got {self._text!r}")
        return whole

    @property
    def name(self) -> str:
        """The operator's, such as `aten::add`."""
        return self._parts["name"]

    @property
    def overload_name(self) -> str:
        """That of the overload; "" for the default one."""
        return self._parts["overload"] or ""

    @cached_property
    def arguments(self) -> list[Argument]:
        """The parameters, in order."""
        arguments: list[Argument] = []
        only_by_keyword = False
        for part in split(self._parts["params"]):
            if part == "*":
                only_by_keyword = True
            else:
                arguments.append(_argument(part, only_by_keyword))
        return arguments

    @cached_property
    def returns(self) -> list[Argument]:
        """The results, most of which have no names."""
        inner = self._parts["returns"]
        parts = split(inner[1:-1] if inner.startswith("(") and inner.endswith(")") else inner)
        return [_argument(part, False) for part in parts]

    @cached_property
    def is_mutable(self) -> bool:
        """Whether it writes to an argument."""
        return any(x.alias_info is not None and x.alias_info.is_write for x in self.arguments)

    @cached_property
    def is_view(self) -> bool:
        """Whether a result shares elements with an argument that is not written to."""
        return not self.is_mutable and any(x.alias_info is not None for x in self.returns)

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionSchema | str) and self._text == str(other)

    def __hash__(self) -> int:
        return hash(self._text)


def _argument(text: str, only_by_keyword: bool) -> Argument:
    match = PARAM.fullmatch(text)
    if match is None:
        raise SchemaError(f"expected a parameter such as 'Tensor x' or 'int n=1', got {text!r}")
    alias: str | None = match["alias"]
    info = None
    if alias is not None:
        info = AliasInfo(frozenset(re.findall(r"\w+|\*", alias.partition("->")[0])), "!" in alias)
    return Argument(
        match["name"] or "",
        match["type"] + match["suffix"],
        None if match["default"] is None else value_of(match["default"]),
        only_by_keyword,
        info,
        match["default"] is not None,
    )
