"""The names that PyTorch's programs use for operators, as `weft.ops.aten.mm.default`, to say which ones they mean.

An operator has the name of its node in the graph: `mm` for `MmBackward0`. Overloads are not told apart. The names are
for comparison only: any name is taken, since programs also list operators that do not occur here, and none is called.
"""

from __future__ import annotations

import re
from typing import NoReturn

from weft.errors import ArgumentError
from weft.ops._namespaces import OpNamespace, OpOverload, OpOverloadPacket
from weft.ops._table import TABLE


def _key_of(name: str) -> str:
    """What forms of one operator have in common; attention is one operator, whatever its kernel is called."""
    return re.sub(r"^(scaled_dot_product)_\w+?(_backward)?$", r"\1\2", name.strip("_"))


def _refuse_call(text: str) -> NoReturn:
    """Raise `TypeError` for a call, and say which public function there is."""
    op = TABLE.get(text.split(".")[1])
    instead = "the function of torch or torch.nn.functional that computes it"
    if op is not None and op.public.function:
        instead = f"torch.{op.public.module}.{op.name}()" if op.public.module else f"torch.{op.name}()"
    elif op is not None and op.public.method:
        instead = f"x.{op.public.method}()"
    raise ArgumentError(
        f"torch.ops.{text} is the name of an operator, for policies and counts, and cannot be called: call {instead}"
    )


class _Form:
    """Equal to other forms of its operator, such as other overloads and in-place forms."""

    _key: str

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Raises `TypeError`: it is a name."""
        _refuse_call(str(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


class AtenOverload(_Form, OpOverload):
    """One overload of an operator, by name."""

    def __init__(self, packet: AtenPacket, overload: str) -> None:
        super().__init__(packet, overload, None)
        self._key = packet._key


class AtenPacket(_Form, OpOverloadPacket):
    """All overloads of an operator: attributes are `default` and the others by name."""

    def __init__(self, name: str) -> None:
        super().__init__("aten", name)
        self._key = _key_of(name)

    def __getattr__(self, name: str) -> AtenOverload:
        if name.startswith("__"):
            raise AttributeError(name)
        return AtenOverload(self, name)


class _Aten(OpNamespace):
    """The operators by name."""

    def __getattr__(self, name: str) -> AtenPacket:
        if name.startswith("__"):
            raise AttributeError(name)
        return AtenPacket(name)


aten = _Aten("aten")
