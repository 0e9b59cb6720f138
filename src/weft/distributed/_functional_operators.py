"""Collectives as operators, `weft.ops.c10d_functional.all_reduce` and so on: keys of counts, and calls.

`weft.ops.c10d` has the names of what process groups do, which are keys only.
"""

from __future__ import annotations

from typing import Any

from weft._base.types import AnyCallable, Arg
from weft._tensor.tensor import Tensor
from weft.distributed import _functional as functional
from weft.distributed._observers import NAMES
from weft.errors import ArgumentError
from weft.ops._namespaces import NAMESPACES


class CollectiveOperator:
    """A collective by name. It equals that name, and the same collective in another namespace."""

    def __init__(self, namespace: str, name: str, function: AnyCallable | None) -> None:
        self.namespace = namespace
        self.__name__ = name
        self._function = function

    @property
    def default(self) -> CollectiveOperator:
        """The only overload, which is called as the operator is."""
        return self

    def __call__(self, *args: Arg, **kwargs: Arg) -> Any:
        """Call the collective, with PyTorch's arguments of the operator."""
        if self._function is None:
            raise ArgumentError(f"torch.ops.{self} is the name of a collective, for counts: call torch.distributed's")
        return self._function(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return str(self.__name__) == (other.__name__ if isinstance(other, CollectiveOperator) else other)

    def __hash__(self) -> int:
        return hash(self.__name__)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"


class CollectiveNamespace:
    """The collectives of a namespace."""

    def __init__(self, name: str, functions: dict[str, AnyCallable | None]) -> None:
        self.name = name
        self._operators = {own: CollectiveOperator(name, own, function) for own, function in functions.items()}

    def __getattr__(self, name: str) -> CollectiveOperator:
        try:
            return self.__dict__["_operators"][name]
        except KeyError:
            raise AttributeError(f"'_OpNamespace' '{self.name}' object has no attribute '{name}'") from None

    def __dir__(self) -> list[str]:
        return list(self._operators)


def _written(function: AnyCallable) -> AnyCallable:
    """The form of a collective that writes its result to its argument."""

    def call(x: Any, *args: Arg) -> Any:
        results = function(x, *args)
        if isinstance(x, Tensor):
            return x.copy_(results)
        return [one.copy_(result) for one, result in zip(x, results, strict=True)]

    return call


_NATIVE: dict[str, AnyCallable | None] = {
    "all_reduce": functional.all_reduce,
    "all_reduce_": _written(functional.all_reduce),
    "all_reduce_coalesced": functional.all_reduce_coalesced,
    "all_reduce_coalesced_": _written(functional.all_reduce_coalesced),
    "broadcast": functional.broadcast,
    "broadcast_": _written(functional.broadcast),
    "all_gather_into_tensor": lambda x, count, group: functional.all_gather_single(x, 0, group),
    "all_gather_into_tensor_coalesced": lambda xs, count, group: functional.all_gather_single_coalesced(xs, group),
    "reduce_scatter_tensor": lambda x, word, count, group: functional.reduce_scatter_single(x, word, 0, group),
    "reduce_scatter_tensor_coalesced": lambda xs, word, count, group: functional.reduce_scatter_single_coalesced(
        xs, word, [0] * len(xs), group
    ),
    "all_to_all_single": functional.all_to_all_single,
    "wait_tensor": functional.wait_tensor,
}
_BY_RANKS: dict[str, AnyCallable | None] = {
    "all_reduce": lambda x, word, tag, ranks, count: functional.all_reduce(x, word, _of(ranks)),
    "all_reduce_coalesced": lambda xs, word, tag, ranks, count: functional.all_reduce_coalesced(xs, word, _of(ranks)),
    "broadcast": lambda x, source, tag, ranks, count: functional.broadcast(x, source, _of(ranks)),
    "all_gather_into_tensor": lambda x, tag, ranks, count: functional.all_gather_single(x, 0, _of(ranks)),
    "all_gather_into_tensor_coalesced": lambda xs, tag, ranks, count: functional.all_gather_single_coalesced(
        xs, _of(ranks)
    ),
    "reduce_scatter_tensor": lambda x, word, tag, ranks, count: functional.reduce_scatter_single(
        x, word, 0, _of(ranks)
    ),
    "reduce_scatter_tensor_coalesced": lambda xs, word, tag, ranks, count: functional.reduce_scatter_single_coalesced(
        xs, word, [0] * len(xs), _of(ranks)
    ),
    "all_to_all_single": lambda x, received, sent, tag, ranks, count: functional.all_to_all_single(
        x, received, sent, _of(ranks)
    ),
    "wait_tensor": functional.wait_tensor,
}
_of = functional.group_of_ranks

for _name, _functions in (
    ("_c10d_functional", _NATIVE),
    ("_c10d_functional_autograd", _NATIVE),
    ("c10d_functional", _BY_RANKS),
    ("c10d", dict.fromkeys(NAMES.values())),
):
    NAMESPACES[_name] = CollectiveNamespace(_name, _functions)
