"""PyTorch's operators by name, as `weft.ops.aten.mm.default`: what they are called, and what they take.

`aten_schemas.txt` has the schemas of what is computed here. Other names are taken, too, since programs list operators
that do not occur here; a call says what there is instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path

from weft._base.types import Arg, Result
from weft.ops._namespaces import OpNamespace, OpOverload, OpOverloadPacket
from weft.ops._schema import FunctionSchema

_FILE = Path(__file__).with_name("aten_schemas.txt")

# --- schemas ------------------------------------------------------------------------------------------------------


@cache
def _lines() -> Mapping[str, list[str]]:
    """The lines of the file by the name of the packet."""
    lines: dict[str, list[str]] = {}
    for line in _FILE.read_text().splitlines():
        lines.setdefault(re.split(r"[.(]", line, maxsplit=1)[0], []).append(line)
    return lines


@cache
def texts_of(name: str) -> Mapping[str, str]:
    """The schemas of a packet by overload, "" for the default one; none for what is not computed here."""
    texts: dict[str, str] = {}
    for line in _lines().get(name, ()):
        text, *marks = line.split("; ")
        overload = text.partition("(")[0].partition(".")[2]
        texts[overload] = text
        for mark in marks:
            if mark.startswith("out="):
                texts[mark[4:]] = out_text(text, mark[4:])
    if name.endswith("_"):
        for line in _lines().get(name[:-1], ()):
            text, *marks = line.split("; ")
            if "inplace" in marks:
                texts[text.partition("(")[0].partition(".")[2]] = inplace_text(text)
    return texts


@cache
def is_composite(name: str) -> bool:
    """Whether PyTorch computes an operator by others, all its overloads."""
    lines = _lines().get(name) or _lines().get(name.removesuffix("_"), ())
    return bool(lines) and all("; composite" in line for line in lines)


def inplace_text(text: str) -> str:
    """The schema of the form that writes to its first argument."""
    name, paren, rest = re.split(r"([.(])", text, maxsplit=1)
    many = "[]" if "Tensor[] self" in rest else ""
    rest = rest.replace(f"Tensor{many} self", f"Tensor(a!){many} self", 1)
    head = rest.rpartition(" -> ")[0]
    return f"{name}_{paren}{head} -> {'()' if many else 'Tensor(a!)'}"


def out_text(text: str, overload: str) -> str:
    """The schema of an overload that writes to an argument which comes last."""
    name = re.split(r"[.(]", text, maxsplit=1)[0]
    params = text[text.index("(") + 1 : text.rindex(") -> ")]
    star = "" if "*, " in params else "*, "
    return f"{name}.{overload}({params}{', ' if params else ''}{star}Tensor(a!) out) -> Tensor(a!)"


# --- names --------------------------------------------------------------------------------------------------------


def _key_of(name: str) -> str:
    """What forms of one operator have in common; attention is one operator, whatever its kernel is called."""
    return re.sub(r"^(scaled_dot_product)_\w+?(_backward)?$", r"\1\2", name.strip("_"))


class AtenOverload(OpOverload):
    """One overload of an operator."""

    def __init__(self, packet: AtenPacket, overload: str) -> None:
        super().__init__(packet, overload, None)
        self.key = packet.key

    @cached_property
    def _schema(self) -> FunctionSchema:
        name = "" if self._overloadname == "default" else self._overloadname
        text = texts_of(self.overloadpacket.__name__).get(name)
        return FunctionSchema(f"{self.name()}(...) -> ..." if text is None else f"aten::{text}")

    def __call__(self, *args: Arg, **kwargs: Arg) -> Result:
        """Compute it; `TypeError` for a name that is not computed here."""
        return _above().call(self, args, kwargs)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, FormOfOperator) and other == self)

    def __hash__(self) -> int:
        return hash(self.key)

    def __reduce__(self) -> tuple[Arg, ...]:
        return getattr, (self.overloadpacket, self._overloadname)


class AtenPacket(OpOverloadPacket):
    """All overloads of an operator: attributes are `default` and the others by name."""

    def __init__(self, name: str) -> None:
        super().__init__("aten", name)
        self.key = _key_of(name)

    def overloads(self) -> list[str]:
        """The names of the overloads."""
        return [name or "default" for name in texts_of(self.__name__)]

    def __getattr__(self, name: str) -> AtenOverload:
        if name.startswith("__"):
            raise AttributeError(name)
        overload = self._overloads[name] = AtenOverload(self, name)
        self.__dict__[name] = overload
        return overload

    def __call__(self, *args: Arg, **kwargs: Arg) -> Result:
        """Compute the overload that takes these arguments."""
        return _above().call_packet(self, args, kwargs)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, FormOfPacket) and other == self)

    def __hash__(self) -> int:
        return hash(self.key)

    def __reduce__(self) -> tuple[Arg, ...]:
        return getattr, (aten, self.__name__)


def _above() -> Arg:
    """What computes, which stands in a higher layer."""
    return import_module("weft._interop.aten.functions")


class _Aten(OpNamespace):
    """The operators by name."""

    def __getattr__(self, name: str) -> AtenPacket:
        if name.startswith("__"):
            raise AttributeError(name)
        packet = AtenPacket(name)
        self.__dict__[name] = packet
        return packet

    def __reduce__(self) -> str:
        return "aten"


# no cell: names that have been looked up
aten = _Aten("aten")

# --- forms of one operator ----------------------------------------------------------------------------------------


class FormOfOperator(AtenOverload):
    """An operator as policies of checkpoints are asked about it: equal to all forms, such as other overloads.

    What is recorded is `mul`, whether the program wrote `x * y` or `x.mul_(y)`, and a list says either.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AtenOverload) and self.key == other.key

    __hash__ = AtenOverload.__hash__


class FormOfPacket(AtenPacket):
    """The same for packets, by which operations are counted."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AtenPacket) and self.key == other.key

    __hash__ = AtenPacket.__hash__

    def __getattr__(self, name: str) -> FormOfOperator:
        if name.startswith("__"):
            raise AttributeError(name)
        return FormOfOperator(self, name)
