"""PyTorch's files from before 0.2: tar archives of storages, tensors and a pickle that refers to them by number."""

from __future__ import annotations

import io
import struct
import tarfile
from typing import IO

import numpy as np

from weft._base.guards import is_plain_list, is_plain_tuple
from weft._base.types import PyTree
from weft._checkpoint.archive import filled
from weft._checkpoint.buffers import array_on, tensor_of
from weft._checkpoint.keys import Unpickled
from weft._checkpoint.map_location import Locate
from weft._checkpoint.pickled import Global
from weft._checkpoint.storages import placed, view_of_storage
from weft._checkpoint.torch_files import Trusted, plain_object, storage_types
from weft._checkpoint.torch_functions import CLASSES
from weft._tensor.storage import typed
from weft._tensor.tensor import Tensor
from weft.errors import CheckpointError

_MEMBERS = {"storages", "tensors", "pickle"}


def is_tar(file: IO[bytes]) -> bool:
    """Whether an open file is such an archive; it is left at its beginning."""
    start = file.tell()
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            return set(archive.getnames()) >= _MEMBERS
    except (tarfile.TarError, OSError, ValueError):
        return False
    finally:
        file.seek(start)


def load_tar(file: IO[bytes], locate: Locate, encoding: str, trusted: Trusted | None) -> PyTree:
    """The object in such an archive, whose pickle `trusted` reads; without it, none is read."""
    if trusted is None:
        raise CheckpointError(
            "Cannot use ``weights_only=True`` with files saved in the legacy .tar format. If you trust the source of "
            "the file, whose code is then run, load it with `weights_only=False`"
        )
    with tarfile.open(fileobj=file, mode="r:") as archive:
        storages, tensors, content = (_content(archive, name) for name in ("storages", "tensors", "pickle"))
    objects: dict[object, Unpickled] = {}
    # How many storages there are, then of each its key, place and type in a pickle, its count, and its elements.
    for _ in range(_count(storages, encoding)):
        key, location, kind = _triple(storages, encoding)
        dtype = storage_types.get(kind.name.rpartition(".")[2]) if isinstance(kind, Global) else None
        if dtype is None:
            raise CheckpointError(f"it holds a storage of the type {kind!r}, which there is not here")
        (count,) = struct.unpack("<q", storages.read(8))
        if not 0 <= count * dtype.itemsize <= len(storages.getbuffer()):
            raise CheckpointError(f"it holds a storage of {count} elements, more than the file has")
        elements = filled(storages, storages.tell(), count * dtype.itemsize, "storages")
        target = locate(location, len(elements))
        whole = tensor_of(array_on(target, dtype, (count,), elements), (count,), dtype, target)
        objects[key] = typed(whole.untyped_storage(), dtype)
    # Storages that show a part of another one: each becomes a storage of its own.
    views = plain_object(storages, encoding)
    for target, root, offset, count in views if is_plain_list(views) else ():
        part = objects[root].elements()[offset : offset + count].clone()
        objects[target] = typed(part.untyped_storage(), objects[root].dtype)
    for _ in range(_count(tensors, encoding)):  # the key of each, that of its storage, and where it lies in that
        key, storage, _ = _triple(tensors, encoding)
        objects[key] = _tensor(tensors, objects[storage])

    def stored(pid: Unpickled) -> Unpickled:
        return pid[0] if is_plain_tuple(pid) else objects[int(pid)]

    return trusted(content, stored, CLASSES.get)


def _content(archive: tarfile.TarFile, name: str) -> io.BytesIO:
    member = archive.extractfile(name)
    if member is None:
        raise CheckpointError(f"the member {name!r} is no file")
    return io.BytesIO(member.read())


def _count(file: IO[bytes], encoding: str) -> int:
    count = plain_object(file, encoding)
    if type(count) is not int:
        raise CheckpointError("it does not say how many storages or tensors it has")
    return count


def _triple(file: IO[bytes], encoding: str) -> tuple[Unpickled, Unpickled, Unpickled]:
    entry = plain_object(file, encoding)
    if not is_plain_tuple(entry) or len(entry) != 3:
        raise CheckpointError("it describes a storage or a tensor in a way that makes no sense")
    return entry[0], entry[1], entry[2]


def _tensor(file: IO[bytes], storage: Unpickled) -> Tensor:
    """The tensor that a file describes next: its dims, sizes, strides and offset, in 64 bits each."""
    (ndim,) = struct.unpack("<q", file.read(8))
    if not 0 <= ndim <= 64:
        raise CheckpointError(f"it has a tensor of {ndim} dims")
    numbers = np.frombuffer(file.read(16 * ndim + 8), "<i8").tolist()
    sizes, strides, offset = tuple(numbers[:ndim]), numbers[ndim:-1], numbers[-1]
    whole: Tensor = storage.elements()
    return view_of_storage(whole, placed(sizes, strides, offset, storage.dtype, whole.nbytes))
