"""Keys by which tensors of one call resemble those of another: types, paths of views, and shared storage."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from weft._lazy.aval import in_memory
from weft._lazy.role import Leaf
from weft._tensor.alias import owner_of
from weft._tensor.base import TensorBase
from weft.errors import ValueRangeError


def kind_of(tensor: TensorBase) -> Hashable:
    """A key that is equal for tensors which a captured program can take for each other."""
    try:
        value = tensor._read()
    except ValueRangeError:  # a parameter that has no elements yet
        return type(tensor)
    role = value.role
    own = (
        in_memory(value.aval, False),
        None if role is None else isinstance(role, Leaf),
        tensor._role is None,
        type(tensor),
    )
    alias = tensor._alias
    if alias is None:
        return own
    steps = tuple([(call, tuple([x.aval for x in others])) for call, others in alias.steps])
    return (*own, kind_of(alias.base), alias.tracked, steps)


def sharing(tensors: Sequence[TensorBase], outside: Mapping[int, object]) -> tuple[int, ...]:
    """For each tensor, the number of what shares its storage: one that is `outside`, or the first of these tensors."""
    first: dict[int, int] = {}
    roots = [id(owner_of(tensor)) for tensor in tensors]
    return tuple([root if root in outside else first.setdefault(root, -at) for at, root in enumerate(roots)])


def places_of_first(tensors: Sequence[TensorBase]) -> tuple[int, ...]:
    """For each tensor, the place of its first occurrence."""
    first: dict[int, int] = {}
    return tuple([first.setdefault(id(tensor), at) for at, tensor in enumerate(tensors)])
