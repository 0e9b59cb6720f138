"""The names that PyTorch's programs use for operators, as `weft.ops.aten.mm.default`, to say which ones they mean.

An operator has the name of its node in the graph: `mm` for `MmBackward0`. Overloads are not told apart. The names are
for comparison only: any name is taken, since programs also list operators that do not occur here, and none is called.
"""

from __future__ import annotations

import re
from typing import NoReturn

from weft.errors import ArgumentError
from weft.ops._table import TABLE


def _key_of(name: str) -> str:
    """What forms of one operator have in common; attention is one operator, whatever its kernel is called."""
    return re.sub(r"^(scaled_dot_product)_\w+?(_backward)?$", r"\1\2", name.strip("_"))


def _refuse_call(text: str, name: str) -> NoReturn:
    """Raise `TypeError` for a call, and say which public function there is."""
    op = TABLE.get(name)
    instead = "the function of torch or torch.nn.functional that computes it"
    if op is not None and op.public.function:
        instead = f"torch.{op.public.module}.{name}()" if op.public.module else f"torch.{name}()"
    elif op is not None and op.public.method:
        instead = f"x.{op.public.method}()"
    raise ArgumentError(
        f"torch.ops.{text} is the name of an operator, for policies and counts, and cannot be called: call {instead}"
    )


class OpOverload:
    """An operator. Two are equal if they are forms of one operator, such as other overloads and in-place forms."""

    def __init__(self, name: str, overload: str = "default") -> None:
        self._name = name
        self._overload = overload
        self._key = _key_of(name)

    @property
    def __name__(self) -> str:
        return f"{self._name}.{self._overload}"

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Raises `TypeError`: it is a name."""
        _refuse_call(str(self), self._name)

    def name(self) -> str:
        """The qualified name."""
        return f"aten::{self._name}" + (f".{self._overload}" if self._overload != "default" else "")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpOverload) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"<OpOverload(op='aten.{self._name}', overload='{self._overload}')>"

    def __str__(self) -> str:
        return f"aten.{self._name}.{self._overload}"


class OpOverloadPacket:
    """All overloads of an operator: attributes are `default` and the others by name. Two are equal as overloads are."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._key = _key_of(name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpOverloadPacket) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Raises `TypeError`: it is a name."""
        _refuse_call(str(self), self._name)

    def __getattr__(self, overload: str) -> OpOverload:
        if overload.startswith("__"):
            raise AttributeError(overload)
        return OpOverload(self._name, overload)

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='aten.{self._name}')>"

    def __str__(self) -> str:
        return f"aten.{self._name}"


class Namespace:
    """The operators by name."""

    def __getattr__(self, name: str) -> OpOverloadPacket:
        if name.startswith("__"):
            raise AttributeError(name)
        return OpOverloadPacket(name)


aten = Namespace()
