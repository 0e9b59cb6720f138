"""Batches on their way to a device while the last ones are in use."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from weft._tensor.convert import existing
from weft._tensor.tensor import Tensor
from weft.errors import ValueRangeError
from weft.utils.data._utils.collate import by_leaf


class prefetch_to:
    """The batches of a loader with their tensors on a device, `ahead` of them on the way before they are asked for.

    Copies to a device run beside what the device computes. Mappings and sequences are searched for tensors; plain
    tuples become lists. `ValueError` for `ahead` below one.
    """

    def __init__(self, loader: Iterable[Any], device: Any, ahead: int = 2) -> None:
        if ahead < 1:
            raise ValueRangeError(f"prefetch_to: ahead should be a positive integer, but got ahead={ahead}")
        self._loader = loader
        self._device = existing(device)
        self._ahead = ahead

    def __iter__(self) -> Iterator[Any]:
        moved = (by_leaf(batch, self._moved) for batch in self._loader)
        waiting = deque(islice(moved, self._ahead))
        while waiting:
            yield waiting.popleft()
            waiting.extend(islice(moved, 1))

    def _moved(self, leaf: Any) -> Any:
        return leaf.to(self._device) if isinstance(leaf, Tensor) else leaf

    def __len__(self) -> int:
        return len(self._loader)  # pyright: ignore[reportArgumentType]  TypeError where it has no length
