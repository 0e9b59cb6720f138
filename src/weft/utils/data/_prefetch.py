"""Prefetching of batches to a device."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from weft._base.device import DeviceLike
from weft._base.types import PyTree, SavedState
from weft._tensor.convert import existing
from weft._tensor.tensor import Tensor
from weft.errors import StateDictError, ValueRangeError
from weft.utils.data._utils.collate import by_leaf

if TYPE_CHECKING:
    from weft.utils.data._utils.samples import Batch, Sample
    from weft.utils.data.dataloader import DataLoader


class prefetch_to:
    """A loader's batches with their tensors on a device; `ahead` batches are transferred before they are asked for.

    Transfers run while the device computes. Tensors in mappings and sequences are found; plain tuples become lists.
    `ValueError` for `ahead` below one.
    """

    def __init__(self, loader: DataLoader, device: DeviceLike, ahead: int = 2) -> None:
        if ahead < 1:
            raise ValueRangeError(f"prefetch_to: ahead should be a positive integer, but got ahead={ahead}")
        self._loader: Any = loader
        self._device = existing(device)
        self._ahead = ahead
        self._state: dict[str, Any] | None = None  # the loader's state after the batch that the loop has now

    def __iter__(self) -> Iterator[Batch]:
        moved = ((by_leaf(batch, self._moved), self._loader_state()) for batch in self._loader)
        waiting = deque(islice(moved, self._ahead))
        while waiting:
            batch, self._state = waiting.popleft()
            yield batch
            waiting.extend(islice(moved, 1))
        self._state = None

    def _loader_state(self) -> SavedState | None:
        with suppress(StateDictError):  # some loaders have no state
            return self._loader.state_dict() if hasattr(self._loader, "state_dict") else None
        return None

    def state_dict(self) -> SavedState:
        """The position of the loop: `DataLoader.state_dict`, without the prefetched batches."""
        return self._state or self._loader.state_dict()

    def load_state_dict(self, state_dict: SavedState) -> None:
        """Resume from a state in the next pass, as `DataLoader.load_state_dict`."""
        self._state = None
        self._loader.load_state_dict(state_dict)

    def _moved(self, leaf: Sample) -> PyTree:
        return leaf.to(self._device) if isinstance(leaf, Tensor) else leaf

    def __len__(self) -> int:
        return len(self._loader)  # TypeError if it has no length
