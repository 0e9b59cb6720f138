"""Memory that processes share: one segment for the elements of a tensor that goes from one process to another.

By the strategy `file_descriptor` a segment is an anonymous file, and what is sent is its descriptor. The kernel frees
it with the last process that has it, also if all are killed. By `file_system` it is a file with a name, and what is
sent is that: so a process can have more segments than descriptors. The names are registered with Python's resource
tracker, a process that removes what is left once all others have ended.
"""

from __future__ import annotations

import mmap
import os
import secrets
import tempfile
from multiprocessing import resource_tracker
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary, finalize

from weft.multiprocessing._sharing import get_sharing_strategy

_DIRECTORY = Path("/dev/shm" if Path("/dev/shm").is_dir() else tempfile.gettempdir())

# no cell: what this process has mapped, whatever a function does
_mapped: WeakValueDictionary[tuple[int, int], Segment] = WeakValueDictionary()
"""The segments of this process, by device and number of their files: what arrives twice is mapped once."""


class Segment:
    """A piece of shared memory, mapped by this process.

    bytes  its content, for reading and writing
    size   the number of its bytes
    """

    __slots__ = ("__weakref__", "bytes", "size")

    def __init__(self, file: int, size: int) -> None:
        self.size = size
        self.bytes = mmap.mmap(file, max(size, 1))
        status = os.fstat(file)
        _mapped[status.st_dev, status.st_ino] = self

    def sent(self) -> Handle:
        """What another process opens, pickled by `multiprocessing`."""
        raise NotImplementedError


class _ByDescriptor(Segment):
    __slots__ = ("_file",)

    def __init__(self, file: int, size: int) -> None:
        super().__init__(file, size)
        self._file = file
        finalize(self, os.close, file).atexit = False

    def sent(self) -> Handle:
        return _DescriptorHandle(DupFd(self._file), self.size)


class _ByName(Segment):
    __slots__ = ("_path",)

    def __init__(self, file: int, size: int, path: Path) -> None:
        super().__init__(file, size)
        os.close(file)
        self._path = path
        finalize(self, _remove, path, os.getpid())

    def sent(self) -> Handle:
        # A name of its own, since this process may drop the segment before the other one opens it.
        path = _new_path()
        os.link(self._path, path)
        resource_tracker.register(f"/{path.name}", "shared_memory")
        return _NameHandle(path, self.size)


class Handle:
    """What is sent of a segment."""

    def __init__(self, size: int) -> None:
        self.size = size

    def opened(self) -> Segment:
        """The segment, mapped in this process; the same object as long as it lives here."""
        file = self._file()
        status = os.fstat(file)
        segment = _mapped.get((status.st_dev, status.st_ino))
        if segment is None:
            return self._mapped(file)
        os.close(file)
        self._drop()
        return segment

    def _file(self) -> int:
        """A descriptor of the file."""
        raise NotImplementedError

    def _mapped(self, file: int) -> Segment:
        """A new segment, which takes over the descriptor."""
        raise NotImplementedError

    def _drop(self) -> None:
        """Give up what was sent, where the segment is here already."""


class _DescriptorHandle(Handle):
    def __init__(self, descriptor: Any, size: int) -> None:
        super().__init__(size)
        self._descriptor = descriptor

    def _file(self) -> int:
        return self._descriptor.detach()

    def _mapped(self, file: int) -> Segment:
        return _ByDescriptor(file, self.size)


class _NameHandle(Handle):
    def __init__(self, path: Path, size: int) -> None:
        super().__init__(size)
        self._path = path

    def _file(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CLOEXEC)

    def _mapped(self, file: int) -> Segment:
        return _ByName(file, self.size, self._path)

    def _drop(self) -> None:
        _remove(self._path, os.getpid())


def new_segment(size: int) -> Segment:
    """A segment of zeros, by the strategy that is set."""
    if get_sharing_strategy() == "file_descriptor" and hasattr(os, "memfd_create"):
        file = os.memfd_create("weft-tensor")
        os.ftruncate(file, max(size, 1))
        return _ByDescriptor(file, size)
    path = _new_path()
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    resource_tracker.register(f"/{path.name}", "shared_memory")
    os.ftruncate(file, max(size, 1))
    return _ByName(file, size, path)


def _new_path() -> Path:
    return _DIRECTORY / f"weft-{os.getpid()}-{secrets.token_hex(8)}"


def _remove(path: Path, process: int) -> None:
    """Remove a name, in the process that has made it: a forked one has the segment, too, and not the name."""
    if os.getpid() == process:
        path.unlink(missing_ok=True)
        resource_tracker.unregister(f"/{path.name}", "shared_memory")
