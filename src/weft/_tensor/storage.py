"""Storages of tensors: their identity and size."""

from __future__ import annotations

import threading

from weft._base.device import device
from weft._tensor.tensor import Tensor

_ALIGNMENT = 64


class _Addresses:
    """Numbers used as addresses. Real addresses would be useless, since values move whenever a tensor is written.

    No processor has memory at these addresses, so reading there fails at once.
    """

    def __init__(self) -> None:
        self._next = 1 << 60
        self._lock = threading.Lock()

    def take(self, size: int) -> int:
        """The start of a new range of this many bytes."""
        with self._lock:
            start = self._next
            self._next += -(-size // _ALIGNMENT) * _ALIGNMENT
        return start


_addresses = _Addresses()


class UntypedStorage:
    """The memory of a tensor and its aliases, in bytes."""

    def __init__(self, base: Tensor) -> None:
        self._base = base

    def nbytes(self) -> int:
        """The number of bytes."""
        return self._base.nbytes

    size = __len__ = nbytes

    def data_ptr(self) -> int:
        """A number used as the address of the first byte, where nothing can be read; 0 for an empty storage."""
        base, size = self._base, self.nbytes()
        if not base._address and size:
            base._address = _addresses.take(size)
        return base._address

    @property
    def device(self) -> device:
        """The device of the storage."""
        return self._base.device

    def is_shared(self) -> bool:
        """False: other processes do not see it."""
        return False

    def __repr__(self) -> str:
        return f"[torch.storage.UntypedStorage(device={self.device}) of size {self.nbytes()}]"
