"""Collectives as operators, `weft.ops.c10d_functional.all_reduce` and so on: keys of counts, and calls.

`weft.ops.c10d` has the names of what process groups do, which are keys only.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.types import AnyCallable, Arg, Result
from weft._tensor.tensor import Tensor
from weft.distributed import _functional as functional
from weft.distributed._functional import Group
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

    def __call__(self, *args: Arg, **kwargs: Arg) -> Result:
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

    def call(x: Tensor | Sequence[Tensor], *args: Arg) -> Tensor | list[Tensor]:
        results = function(x, *args)
        if isinstance(x, Tensor):
            return x.copy_(results)
        return [one.copy_(result) for one, result in zip(x, results, strict=True)]

    return call


# Operators say how many ranks there are, too, which their group knows. Those of before groups name the ranks instead.


def _gathered(x: Tensor, group: Group) -> Tensor:
    return functional.all_gather_single(x, 0, group)


def _scattered(x: Tensor, word: str, group: Group) -> Tensor:
    return functional.reduce_scatter_single(x, word, 0, group)


def _all_scattered(xs: Sequence[Tensor], word: str, group: Group) -> list[Tensor]:
    return functional.reduce_scatter_single_coalesced(xs, word, [0] * len(xs), group)


def _with_count(function: AnyCallable) -> AnyCallable:
    """The form of a collective that takes the number of ranks before the group."""

    def call(*args: Arg) -> Result:
        *operands, _count, group = args
        return function(*operands, group)

    return call


def _by_ranks(function: AnyCallable) -> AnyCallable:
    """The form of a collective that takes a tag, ranks and their number instead of the group."""

    def call(*args: Arg) -> Result:
        *operands, _tag, ranks, _count = args
        return function(*operands, functional.group_of_ranks(ranks))

    return call


_NATIVE: dict[str, AnyCallable | None] = {
    "all_reduce": functional.all_reduce,
    "all_reduce_": _written(functional.all_reduce),
    "all_reduce_coalesced": functional.all_reduce_coalesced,
    "all_reduce_coalesced_": _written(functional.all_reduce_coalesced),
    "broadcast": functional.broadcast,
    "broadcast_": _written(functional.broadcast),
    "all_gather_into_tensor": _with_count(_gathered),
    "all_gather_into_tensor_coalesced": _with_count(functional.all_gather_single_coalesced),
    "reduce_scatter_tensor": _with_count(_scattered),
    "reduce_scatter_tensor_coalesced": _with_count(_all_scattered),
    "all_to_all_single": functional.all_to_all_single,
    "wait_tensor": functional.wait_tensor,
}
_BY_RANKS: dict[str, AnyCallable | None] = {
    "all_reduce": _by_ranks(functional.all_reduce),
    "all_reduce_coalesced": _by_ranks(functional.all_reduce_coalesced),
    "broadcast": _by_ranks(functional.broadcast),
    "all_gather_into_tensor": _by_ranks(_gathered),
    "all_gather_into_tensor_coalesced": _by_ranks(functional.all_gather_single_coalesced),
    "reduce_scatter_tensor": _by_ranks(_scattered),
    "reduce_scatter_tensor_coalesced": _by_ranks(_all_scattered),
    "all_to_all_single": _by_ranks(functional.all_to_all_single),
    "wait_tensor": functional.wait_tensor,
}

for _name, _functions in (
    ("_c10d_functional", _NATIVE),
    ("_c10d_functional_autograd", _NATIVE),
    ("c10d_functional", _BY_RANKS),
    ("c10d", dict.fromkeys(NAMES.values())),
):
    NAMESPACES[_name] = CollectiveNamespace(_name, _functions)
