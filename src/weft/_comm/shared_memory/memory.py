"""Memory shared by the ranks of one group: between processes, or between the threads of one process.

Shared memory is anonymous (`memfd_create`): it has no name in any file system, so nothing is left behind when a process
is killed. Peers of the same user open it through `/proc/PID/fd/N`. It is sparse: a page costs nothing before it is
touched, and stays in place once it is, so a region that is used again is already faulted.
"""

from __future__ import annotations

import mmap
import os
import secrets
from typing import ClassVar, Self
from weakref import WeakValueDictionary

from weft.errors import DistBackendError

_NAME = "weft"
_TOKEN = 16  # random bytes at the start of the memory that identify it


class SharedMemory:
    """Memory of processes of one user on one host. One rank creates it, the others open its `handle`.

    `pid` is the process that peers watch while they wait for this rank. `start` is the number of bytes at the front
    that are used by the memory itself.
    """

    start = 64

    def __init__(self, fd: int, size: int, handle: bytes) -> None:
        self.handle = handle
        self.pid = os.getpid()
        self._fd = fd
        self._map = mmap.mmap(fd, size)

    @classmethod
    def create(cls, size: int) -> Self:
        """Zeroed memory of `size` bytes; its handle names this process, the descriptor, and a random token."""
        if not hasattr(os, "memfd_create"):
            raise DistBackendError("backend 'shm' needs Linux (memfd_create); use backend 'xla' or 'threads' here")
        fd = os.memfd_create(_NAME, os.MFD_CLOEXEC)
        token = secrets.token_bytes(_TOKEN)
        try:
            os.ftruncate(fd, size)
            memory = cls(fd, size, f"{os.getpid()} {fd} {token.hex()}".encode())
        except BaseException:
            os.close(fd)
            raise
        memory._map[:_TOKEN] = token
        return memory

    @classmethod
    def open(cls, handle: bytes, size: int) -> Self:
        """The memory of another process; `DistBackendError` if it cannot be opened from here."""
        pid, number, token = handle.decode().split()
        path = f"/proc/{pid}/fd/{number}"
        fd = -1
        try:
            if not os.readlink(path).startswith(f"/memfd:{_NAME}"):
                raise FileNotFoundError(f"{path} is something else")
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            if os.fstat(fd).st_size != size or os.pread(fd, _TOKEN, 0) != bytes.fromhex(token):
                raise FileNotFoundError(f"{path} belongs to another group")
            memory = cls(fd, size, handle)
        except (OSError, ValueError) as error:
            if fd >= 0:
                os.close(fd)
            raise DistBackendError(
                f"the shared memory of process {pid} cannot be opened: {error}; the ranks of backend 'shm' must run "
                "on one host, as one user, and in one PID namespace; use backend 'xla' otherwise"
            ) from error
        memory.detach()
        return memory

    @staticmethod
    def owner_has_ended(handle: bytes) -> bool:
        """Whether the process that made the memory has ended, also if nobody has waited for it yet."""
        try:
            return not os.listdir(f"/proc/{handle.decode().split()[0]}/fd")
        except FileNotFoundError:
            return True
        except OSError:  # it belongs to another user
            return False

    def view(self) -> memoryview:
        """All of its bytes, writable."""
        return memoryview(self._map)

    def detach(self) -> None:
        """Close the descriptor by which others open the memory; the memory itself stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        """Unmap the memory; its pages are freed with the last process that has it."""
        self.detach()
        del self._map  # not closed explicitly: the traceback of a failure may still have a view


class PrivateMemory:
    """Memory of the threads of this process, with the same interface."""

    start = 0
    pid = 0
    _open: ClassVar[WeakValueDictionary[bytes, PrivateMemory]] = WeakValueDictionary()

    def __init__(self, handle: bytes, data: mmap.mmap) -> None:
        self.handle = handle
        self._map = data

    @classmethod
    def create(cls, size: int) -> Self:
        """Zeroed memory of `size` bytes, which can be opened by its handle until it is detached."""
        # An anonymous map rather than a bytearray: its pages cost nothing before they are touched.
        memory = cls(secrets.token_bytes(_TOKEN), mmap.mmap(-1, size))
        cls._open[memory.handle] = memory
        return memory

    @classmethod
    def open(cls, handle: bytes, size: int) -> Self:
        """The memory that another thread has created."""
        memory = cls._open.get(handle)
        if memory is None or len(memory._map) != size:
            raise DistBackendError(
                "the memory of rank 0 is not in this process; the ranks of backend 'threads' are threads of one "
                "process; use backend 'shm' for processes"
            )
        return cls(handle, memory._map)

    def view(self) -> memoryview:
        """All of its bytes, writable."""
        return memoryview(self._map)

    def detach(self) -> None:
        """Forget the handle."""
        self._open.pop(self.handle, None)

    def close(self) -> None:
        """Release the memory; it is freed with the last thread that has it."""
        self.detach()
        del self._map


Memory = SharedMemory | PrivateMemory
