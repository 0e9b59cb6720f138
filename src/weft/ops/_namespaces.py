"""Operators by their names, `weft.ops.<namespace>.<name>.<overload>`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from weft._base.types import Arg, Result
from weft.ops._schema import FunctionSchema


class OpOverload:
    """One overload of an operator: call it on tensors."""

    def __init__(self, packet: OpOverloadPacket, overload: str, operator: Arg) -> None:
        self.overloadpacket = packet
        self.operator = operator
        self.namespace = packet.namespace
        self._overloadname = overload or "default"
        self.__name__ = f"{packet.__name__}.{self._overloadname}"

    @cached_property
    def _schema(self) -> FunctionSchema:
        return FunctionSchema(self.operator.schema)

    def name(self) -> str:
        """The name as in schemas, such as `mylib::foo.Scalar`."""
        overload = "" if self._overloadname == "default" else f".{self._overloadname}"
        return f"{self.namespace}::{self.overloadpacket.__name__}{overload}"

    def __call__(self, *args: Arg, **kwargs: Arg) -> Result:
        """Record the operator."""
        return self.operator(*args, **kwargs)

    def __str__(self) -> str:
        return f"{self.overloadpacket}.{self._overloadname}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.overloadpacket}', overload='{self._overloadname}')>"


class OpOverloadPacket:
    """All overloads of an operator, which are its attributes."""

    def __init__(self, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.__name__ = name
        self._overloads: dict[str, OpOverload] = {}

    def overloads(self) -> list[str]:
        """The names of the overloads."""
        return list(self._overloads)

    def __getattr__(self, name: str) -> OpOverload:
        try:
            return self.__dict__["_overloads"][name]
        except KeyError:
            raise AttributeError(f"The underlying op of '{self}' has no overload name '{name}'") from None

    def __dir__(self) -> list[str]:
        return self.overloads()

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"


class HigherOrderOperator:
    """An operator that takes functions: of PyTorch's, no object is one here, since functions are captured."""

    def __init__(self, name: str, *, cacheable: bool = False) -> None:
        del cacheable
        self._name = self.__name__ = name
        self.namespace = "higher_order"

    def name(self) -> str:
        """The name that it was given."""
        return self._name

    def __call__(self, *args: Arg, **kwargs: Arg) -> Result:
        """Compute it: a subclass says how."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__")


class OpNamespace:
    """The operators of a namespace."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._packets: dict[str, OpOverloadPacket] = {}

    def __getattr__(self, name: str) -> OpOverloadPacket:
        try:
            return self.__dict__["_packets"][name]
        except KeyError:
            raise AttributeError(f"'_OpNamespace' '{self.name}' object has no attribute '{name}'") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._packets)

    def __dir__(self) -> list[str]:
        return list(self._packets)


# no cell: operators that are defined anew change a cell (`_interop/operators.py`)
NAMESPACES: dict[str, Any] = {}
"""What is found under `weft.ops.<name>`."""
