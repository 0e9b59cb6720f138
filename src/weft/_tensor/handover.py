"""Storages that get another owner: its views, its address and its count of writes go with the elements."""

from __future__ import annotations

import weakref

from weft._tensor.base import Path, TensorBase
from weft._tensor.state import own_facts


def move_storage(owner: TensorBase, target: TensorBase, path: Path = ()) -> None:
    """Make `target` the owner of a storage. Views that are apart follow; others stay with the tensor of their graph.

    `path` leads from `target` to the elements as `owner` has them.
    """
    hand_over(owner, target)
    views, owner._views = owner._views or [], None
    repoint(views, owner, target, tracked=owner, path=path)


def hand_over(old: TensorBase, new: TensorBase) -> None:
    """Let another tensor be the owner of a storage."""
    before, after = own_facts(old), own_facts(new)
    after.writes, after.address, after.storage = before.writes, before.address, before.storage
    before.writes, before.address, before.storage = 0, None, None


def repoint(
    views: list[weakref.ref[TensorBase]],
    old: TensorBase,
    new: TensorBase,
    *,
    tracked: TensorBase,
    path: Path = (),
) -> None:
    """Make views of `old` that are apart views of `new`, the others views of `tracked`; all have the same elements.

    `path` leads from `new` to the elements as `old` has them.
    """
    for ref in views:
        view = ref()
        alias = None if view is None else view._alias
        if alias is not None and alias.base is old:
            alias.base = base = tracked if alias.tracked else new
            if not alias.tracked:
                alias.steps = (*path, *alias.steps)
            if base._views is None:
                base._views = []
            base._views.append(ref)
