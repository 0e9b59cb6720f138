"""Memory lent to peers on the same host: a long buffer is copied once, and the receiver uses the copy in place.

A lender writes into a region of shared memory and sends its handle to the peer; the peer returns it when nothing uses
it any more. Regions are reused, since their pages are already mapped: for the same bytes, without a second copy if
these cannot have changed, or for others. A region whose borrower was lost is not reused, since the borrower may still
read it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from weft._comm.shared_memory.memory import SharedMemory
from weft._comm.transport.wire import pack, unpack
from weft.errors import DistBackendError, DistNetworkError

Array = np.ndarray[Any, Any]

_START = 4096  # bytes before the data, for page alignment; the last of them is the end flag
_KEPT = 512 << 20  # bytes of regions that are kept for reuse
_STEP = 64 << 10  # sizes of regions are multiples of it
_MUCH = 4 << 20  # the fewest bytes that one thread copies
_CORES = min(4, len(os.sched_getaffinity(0)))  # threads that copy; more do not help
_WORTH = 1 << 20  # bytes from which on a received buffer stays in the region; shorter ones are copied


class FrozenBytes(np.ndarray[Any, Any]):
    """Bytes that do not change while the object `of`, to which they belong, is alive."""

    of: Any


class _Origin:
    """The identity of frozen bytes: the object to which they belong, their address and length."""

    __slots__ = ("_of", "_place")

    def __init__(self, bytes_: FrozenBytes) -> None:
        self._of = weakref.ref(bytes_.of)
        self._place = bytes_.ctypes.data, len(bytes_)

    def is_that_of(self, region: LoanRegion) -> bool:
        """Whether a region holds these bytes."""
        held = region.holds
        return held is not None and held._place == self._place and held._of() is self._of()


class LoanRegion:
    """A piece of shared memory."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.loans = 0  # the number of borrowers
        self.lost = False  # whether one of them was lost
        self.holds: _Origin | None = None
        self.memory = SharedMemory.create(_START + size)
        whole = np.frombuffer(self.memory.view(), np.uint8)
        self.data, self._over = whole[_START:], whole[_START - 1 : _START]

    def __del__(self) -> None:
        self._over[0] = True  # borrowers need not keep it either
        self.memory.detach()


class Lender:
    """The regions of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[LoanRegion] = []
        self._lent: dict[int, tuple[object, LoanRegion]] = {}
        self._numbers = 0

    def lend(self, borrower: object, data: memoryview) -> bytes:
        """Copy `data` for a borrower, or reuse a copy; returns the descriptor that the borrower opens."""
        origin = _Origin(data.obj) if isinstance(data.obj, FrozenBytes) else None
        region = self._region(len(data), origin)
        if origin is None or not origin.is_that_of(region):
            _copy(region.data[: len(data)], np.frombuffer(data, np.uint8))
            region.holds = origin
        with self._lock:
            self._numbers += 1
            number = self._numbers
            self._lent[number] = borrower, region
        return pack(region.memory.handle, b"%d" % (_START + region.size), b"%d" % number, b"%d" % len(data))

    def take_back(self, borrower: object, number: int) -> None:
        """Handle the return of a region by its borrower."""
        with self._lock:
            lent = self._lent.get(number)
            # A peer may send any number; it must not free what others still read.
            if lent is None or lent[0] is not borrower:
                return  # not lent to this borrower
            del self._lent[number]
            region = lent[1]
            region.loans -= 1
            if not region.loans and not region.lost:
                self._free.append(region)
            while sum(region.size for region in self._free) > _KEPT:
                self._free.pop(0)

    def forget(self, borrower: object) -> None:
        """Handle the loss of a borrower; its regions are not reused."""
        with self._lock:
            for number, (holder, region) in list(self._lent.items()):
                if holder is borrower:
                    del self._lent[number]
                    region.loans -= 1
                    region.lost = True

    def _region(self, size: int, origin: _Origin | None) -> LoanRegion:
        """A region to lend: one that already has the bytes, else a free one, else a new one."""
        with self._lock:
            region = self._reusable(size, origin) or LoanRegion(-(-size // _STEP) * _STEP)
            if not region.loans and region in self._free:
                self._free.remove(region)
            region.loans += 1
            return region

    def _reusable(self, size: int, origin: _Origin | None) -> LoanRegion | None:
        if origin is not None:
            for region in (*self._free, *(region for _, region in self._lent.values())):
                if origin.is_that_of(region) and not region.lost:
                    return region
        fitting = [region for region in self._free if size <= region.size <= 2 * size + _STEP]
        return min(fitting, key=lambda region: region.size) if fitting else None


def _copy(target: Array, data: Array) -> None:
    """Copy bytes. Many bytes are copied by several threads, since one thread does not use the full memory bandwidth."""
    part = max(_MUCH, -(-len(data) // _CORES))
    threads = [
        threading.Thread(target=np.copyto, args=(target[at : at + part], data[at : at + part]))
        for at in range(part, len(data), part)
    ]
    for thread in threads:
        thread.start()
    np.copyto(target[:part], data[:part])
    for thread in threads:
        thread.join()


class _Loan(np.ndarray[Any, Any]):
    """An array whose finalizer returns the loan; NumPy keeps an instance of a subclass as the base of all views."""


def on_loan(data: Array, release: Callable[..., object], *args: object) -> Array:
    """The same bytes; `release(*args)` is called when neither this array nor any view of it exists any more."""
    loan = data.view(_Loan)
    weakref.finalize(loan, release, *args).atexit = False
    return loan[:]  # a view, so that views of it refer to the loan, and not to the memory below


class Borrower:
    """The memory that one peer has lent to this process."""

    def __init__(self) -> None:
        self._regions: dict[bytes, Array] = {}
        self.returns: deque[int] = deque()
        """The numbers of loans to be returned."""

    def borrow(self, descriptor: bytes, give_back: Callable[[int], None]) -> Array:
        """The bytes of a lender's descriptor. `give_back(number)` is called when nothing uses them any more.

        The call may come from a finalizer, in any thread and at any time.
        """
        try:
            handle, capacity, number_text, size = unpack(descriptor)
            number = int(number_text)
            if not 0 <= number < 1 << 64:
                raise ValueError(f"{number} is no number of a loan")
            region = self._regions.get(handle)
            if region is None:
                self._regions = {at: region for at, region in self._regions.items() if not region[_START - 1]}
                memory = _opened(handle, int(capacity))
                region = self._regions[handle] = np.frombuffer(memory.view(), np.uint8)
            data = region[_START:][: int(size)]
        except (ValueError, DistBackendError) as error:
            raise DistNetworkError(f"it sent a loan that cannot be taken: {error}") from error
        # A copy gives the region back at once, and costs less than keeping it does.
        if len(data) < _WORTH:
            copied = data.copy()
            give_back(number)
            return copied
        return on_loan(data, give_back, number)


def _opened(handle: bytes, capacity: int) -> SharedMemory:
    """The lender's memory; `DistNetworkError` if the lender has ended."""
    try:
        return SharedMemory.open(handle, capacity)
    except DistBackendError as error:
        if SharedMemory.owner_has_ended(handle):
            raise DistNetworkError("it has ended, and its loan with it") from error
        raise
