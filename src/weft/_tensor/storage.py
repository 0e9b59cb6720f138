"""The storage of a tensor, as far as programs ask for it: which memory, and how much of it."""

from __future__ import annotations

import threading

from weft._base.device import device
from weft._tensor.tensor import Tensor

_ALIGNMENT = 64


class _Addresses:
    """Numbers that stand for addresses. Values move whenever a tensor is written, so their own would tell nothing.

    They lie where no processor has memory: who tries to read there fails at once.
    """

    def __init__(self) -> None:
        self._next = 1 << 60
        self._lock = threading.Lock()

    def take(self, size: int) -> int:
        """The start of a stretch of so many bytes, which nobody else gets."""
        with self._lock:
            start = self._next
            self._next += -(-size // _ALIGNMENT) * _ALIGNMENT
        return start


_addresses = _Addresses()


class UntypedStorage:
    """The memory of a tensor, which its aliases share, in bytes."""

    def __init__(self, base: Tensor) -> None:
        self._base = base

    def nbytes(self) -> int:
        """How many bytes there are."""
        return self._base.nbytes

    size = __len__ = nbytes

    def data_ptr(self) -> int:
        """What stands for the address of the first byte, where nothing can be read; 0 where there are no bytes."""
        base, size = self._base, self.nbytes()
        if not base._address and size:
            base._address = _addresses.take(size)
        return base._address

    @property
    def device(self) -> device:
        """Where it is."""
        return self._base.device

    def is_shared(self) -> bool:
        """False: other processes do not see it."""
        return False

    def __repr__(self) -> str:
        return f"[torch.storage.UntypedStorage(device={self.device}) of size {self.nbytes()}]"
