"""From which files storages without elements were loaded."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

from weft._base.device import device
from weft._tensor.alias import owner_of
from weft._tensor.tensor import Tensor


@dataclass(frozen=True)
class Origin:
    """Where a storage without elements comes from.

    owner  its owner
    start  where its bytes lie in the file from which it was loaded
    home   the device on which fake tensors of it say that they are
    """

    owner: weakref.ref[Tensor]
    start: int
    home: device


# no cell: nothing is computed with it. By the identity of an owner.
_origins: dict[int, Origin] = {}


def note_origin(owner: Tensor, start: int, home: device) -> None:
    """Note where a storage without elements comes from."""
    key = id(owner)
    _origins[key] = Origin(weakref.ref(owner, lambda _: _origins.pop(key, None)), start, home)


def origin_of(tensor: Tensor) -> Origin | None:
    """Where the storage of a tensor comes from; None for those with elements, and those from no file."""
    owner = owner_of(tensor)
    origin = _origins.get(id(owner))
    return None if origin is None or origin.owner() is not owner else origin
