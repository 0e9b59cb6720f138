"""Lists and dicts among the arguments of nodes, which must not change behind a graph's back."""

from __future__ import annotations

import copy
from typing import NoReturn, TypeVar

from weft._base.types import Arg
from weft.errors import ArgumentError
from weft.utils._pytree import register_pytree_node

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


def _refuse(self: object, *args: Arg, **kwargs: Arg) -> NoReturn:
    """Raises `TypeError`."""
    del args, kwargs
    raise ArgumentError(
        f"'{type(self).__name__}' object does not support mutation: a graph must know of every change of the arguments "
        "of its nodes. Assign new ones to the node: node.args = new_args, node.kwargs = new_kwargs"
    )


class immutable_list(list[T]):
    """A list that refuses to be changed."""

    append = extend = insert = pop = remove = clear = reverse = sort = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[object, ...]:
        return immutable_list, (list(self),)

    def __deepcopy__(self, memo: dict[int, object]) -> immutable_list[T]:
        return immutable_list([copy.deepcopy(part, memo) for part in self])


class immutable_dict(dict[K, V]):
    """A dict that refuses to be changed."""

    clear = pop = popitem = setdefault = update = __setitem__ = __delitem__ = __ior__ = _refuse

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[object, ...]:
        return immutable_dict, (dict(self),)

    def __deepcopy__(self, memo: dict[int, object]) -> immutable_dict[K, V]:
        return immutable_dict({key: copy.deepcopy(value, memo) for key, value in self.items()})


register_pytree_node(immutable_list, lambda x: (list(x), None), lambda parts, _: immutable_list(parts))
register_pytree_node(
    immutable_dict,
    lambda x: (list(x.values()), list(x)),
    lambda parts, keys: immutable_dict(zip(keys, parts, strict=True)),
)
