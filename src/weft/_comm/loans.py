"""Memory lent to peers on the same host: long buffers are copied once, and the receiver uses them where they are.

A lender writes into a region of shared memory and tells the peer its handle; the peer gives it back when nothing uses
it any more. Regions are used again, since their pages are in place then. A region whose borrower was lost is not, as
that may still read it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from weft._comm.memory import SharedMemory
from weft._comm.wire import pack, unpack
from weft.errors import DistBackendError, DistNetworkError

Array = np.ndarray[Any, Any]

_START = 4096  # bytes before the data: whole pages, so that the data are aligned
_KEPT = 512 << 20  # bytes of regions that are kept for later
_STEP = 64 << 10  # sizes of regions are multiples of it
_MUCH = 4 << 20  # bytes that one thread copies at least
_CORES = min(4, len(os.sched_getaffinity(0)))  # that copy; more than a few gain nothing
_WORTH = 1 << 20  # bytes from which on a buffer stays in the region; less is copied


class Region:
    """A piece of shared memory."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.memory = SharedMemory.create(_START + size)
        self.data = np.frombuffer(self.memory.view(), np.uint8)[_START:]

    def __del__(self) -> None:
        self.memory.detach()


class Lender:
    """The regions of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[Region] = []
        self._lent: dict[int, tuple[object, Region]] = {}
        self._numbers = 0

    def lend(self, borrower: object, data: memoryview) -> bytes:
        """A copy of `data` for a borrower; what it needs to find it."""
        region = self._region(len(data))
        _copy(region.data[: len(data)], np.frombuffer(data, np.uint8))
        with self._lock:
            self._numbers += 1
            number = self._numbers
            self._lent[number] = borrower, region
        return pack(region.memory.handle, b"%d" % (_START + region.size), b"%d" % number, b"%d" % len(data))

    def take_back(self, borrower: object, number: int) -> None:
        """A borrower uses a region no more."""
        with self._lock:
            lent = self._lent.get(number)
            if lent is None or lent[0] is not borrower:
                return  # not its own to give
            del self._lent[number]
            self._free.append(lent[1])
            while sum(region.size for region in self._free) > _KEPT:
                self._free.pop(0)

    def forget(self, borrower: object) -> None:
        """A borrower is lost, and so is what it has."""
        with self._lock:
            for number, (to, _) in list(self._lent.items()):
                if to is borrower:
                    del self._lent[number]

    def _region(self, size: int) -> Region:
        with self._lock:
            fitting = [region for region in self._free if size <= region.size <= 2 * size + _STEP]
            if fitting:
                found = min(fitting, key=lambda region: region.size)
                self._free.remove(found)
                return found
        return Region(-(-size // _STEP) * _STEP)


def _copy(to: Array, data: Array) -> None:
    """Copy bytes: much of it by several threads, since one does not use all that memory can do."""
    part = max(_MUCH, -(-len(data) // _CORES))
    beside = [
        threading.Thread(target=np.copyto, args=(to[at : at + part], data[at : at + part]))
        for at in range(part, len(data), part)
    ]
    for thread in beside:
        thread.start()
    np.copyto(to[:part], data[:part])
    for thread in beside:
        thread.join()


class _Loan(np.ndarray[Any, Any]):
    """Bytes alive as long as any array that lies in them; NumPy keeps a subclass as the base."""


def on_loan(data: Array, release: Callable[..., object], *args: object) -> Array:
    """The same bytes; `release(*args)` is called when neither this nor any array that lies in it is left."""
    loan = data.view(_Loan)
    weakref.finalize(loan, release, *args).atexit = False
    return loan[:]  # a plain array over the loan would have what is below for its base; over this, it has this


class Borrower:
    """What one peer has lent to this process."""

    def __init__(self) -> None:
        self._regions: dict[bytes, Array] = {}
        self.returns: deque[int] = deque()
        """The numbers of loans that are to be given back."""

    def borrow(self, told: bytes, give_back: Callable[[int], None]) -> Array:
        """The bytes that a lender has told of. `give_back` is called, with a number, when nothing uses them any more.

        It may be called from anywhere, also in the middle of something else.
        """
        try:
            handle, capacity, text, size = unpack(told)
            number = int(text)
            if not 0 <= number < 1 << 64:
                raise ValueError(f"{number} is no number of a loan")
            region = self._regions.get(handle)
            if region is None:
                memory = SharedMemory.open(handle, int(capacity))
                region = self._regions[handle] = np.frombuffer(memory.view(), np.uint8)[_START:]
            data = region[: int(size)]
        except (ValueError, DistBackendError) as error:
            raise DistNetworkError(f"it sent a loan that cannot be taken: {error}") from error
        if len(data) < _WORTH:
            found = data.copy()
            give_back(number)
            return found
        return on_loan(data, give_back, number)
