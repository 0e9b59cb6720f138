"""The file `.metadata` of a checkpoint's folder: a pickle of `Metadata`, as PyTorch writes and reads it.

Classes are pickled under the names that PyTorch has for them. Reading runs no code: the pickle's objects are records of
their fields, which are looked at before anything is made of them.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from weft._base.dtype import DTYPES, DType
from weft._base.files import write_output
from weft._base.guards import is_dict
from weft._base.size import Size
from weft._base.types import AnyCallable, Json, PyTree
from weft._checkpoint.pickled import Global, Unpickler, short_repr
from weft._checkpoint.safe import Plain, trusted_global
from weft._checkpoint.storages import is_shape
from weft._checkpoint.torch_pickle import pickled
from weft.distributed.checkpoint.metadata import (
    STORAGE_TYPES,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from weft.errors import CheckpointError, PickleError

NAME = ".metadata"
PICKLE = b"\x80"
"""How a pickle begins."""

ELEMENTS = ".safetensors"
"""How the names of files end whose items are elements in row-major order, or the bytes of an object."""

_PACKAGE = "torch.distributed.checkpoint."
_RECORDS = (
    "metadata.Metadata",
    "metadata.TensorStorageMetadata",
    "metadata.BytesStorageMetadata",
    "metadata.ChunkStorageMetadata",
    "metadata.TensorProperties",
    "metadata.MetadataIndex",
    "metadata.StorageMeta",
    "filesystem._StorageInfo",
)
_IGNORED = (
    "torch.serialization._get_layout",
    f"{_PACKAGE}metadata._MEM_FORMAT_ENCODING",
    "pathlib.PosixPath",
    "pathlib.WindowsPath",
    "pathlib._local.PosixPath",
    "pathlib._local.WindowsPath",
)


@dataclass
class _StorageInfo:
    """Where an item is: a range of bytes in a file of the folder.

    These are a file of their own as `weft.save` writes it, or PyTorch's `torch.save`; in safetensors files, elements.
    `transform_descriptors` are PyTorch's extensions that have changed them.
    """

    relative_path: str
    offset: int
    length: int
    transform_descriptors: Sequence[str] | None = None

    @property
    def archived(self) -> bool:
        """Whether the bytes are a file of their own."""
        return not self.relative_path.endswith(ELEMENTS)


StorageInfo = _StorageInfo  # for other modules: PyTorch has it as a private class


def files_of(metadata: Metadata) -> set[str]:
    """The files of the folder in which a checkpoint's items are."""
    places: Mapping[MetadataIndex, StorageInfo] = metadata.storage_data or {}
    return {info.relative_path for info in places.values()}


# --- writing ----------------------------------------------------------------------------------------------------


def write_metadata(folder: Path, metadata: Metadata) -> None:
    """Write the file, completely or not at all."""
    meta = metadata.storage_meta
    if meta is not None and meta.checkpoint_id is not None:
        # A path is pickled as a class of the operating system, and of the version of Python.
        metadata = replace(metadata, storage_meta=replace(meta, checkpoint_id=str(meta.checkpoint_id)))
    content, storages = pickled(metadata)
    if any(storages):
        raise CheckpointError("cannot save planner_data with tensors in it: put them into the state dict")
    write_output(folder / NAME, content)


# --- reading ----------------------------------------------------------------------------------------------------


class _Record:
    """An object of one of PyTorch's classes: the name of the class, and its state as it stands in the pickle."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state: PyTree = {}

    def get(self, name: str) -> PyTree:
        """A field; `ValueError` if there is none."""
        state = self.state
        if not is_dict(state) or name not in state:
            raise ValueError(f"a {self.name} lacks its {name!r}")
        return state[name]


def read_metadata(path: Path) -> Metadata:
    """The metadata in a file. `CheckpointError` if it is none."""
    content = path.read_bytes()
    plain = Plain(len(content))
    makers: dict[str, AnyCallable] = {f"{_PACKAGE}{name}": partial(_Record, name) for name in _RECORDS}
    makers |= dict.fromkeys(_IGNORED, _nothing)
    table = plain.table() | {name: Global(name, make) for name, make in makers.items()}
    table |= {f"torch.{dtype.name}": dtype for dtype in DTYPES}
    # Only names in the table, and those that the caller trusts, are looked up: no other function of the pickle is
    # called.
    unpickler = Unpickler(lambda name: table.get(name) or trusted_global(name), _no_storage, _set_state, plain.keys)
    try:
        return _metadata(unpickler.load(io.BytesIO(content)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"cannot load {path}: {error}") from error
    except CheckpointError as error:
        raise type(error)(f"cannot load {path}: {error}") from error


def _nothing(*_: object) -> None: ...


def _no_storage(pid: object) -> NoReturn:
    raise PickleError(f"its pickle refers to {short_repr(pid)}, which metadata does not")


def _set_state(x: object, state: PyTree) -> _Record:
    if not isinstance(x, _Record):
        raise PickleError(f"its pickle sets the state of a {type(x).__name__}")
    x.state = state
    return x


def _metadata(record: object) -> Metadata:
    if not isinstance(record, _Record) or record.name != "metadata.Metadata":
        raise ValueError("its pickle holds no metadata of a distributed checkpoint")
    entries = {str(key): _entry(entry) for key, entry in record.get("state_dict_metadata").items()}
    places = {_index(index): _place(place) for index, place in record.get("storage_data").items()}
    for key, entry in entries.items():
        offsets = [chunk.offsets for chunk in entry.chunks] if isinstance(entry, TensorStorageMetadata) else [None]
        if any(MetadataIndex(key, offset) not in places for offset in offsets):
            raise ValueError(f"it does not say where {key!r} is")
    version = record.state.get("version")
    return Metadata(
        entries, record.state.get("planner_data"), places, version=None if version is None else str(version)
    )


def _entry(record: _Record) -> STORAGE_TYPES:
    if record.name == "metadata.BytesStorageMetadata":
        return BytesStorageMetadata()
    dtype, _, requires_grad, *_ = record.get("properties").state
    if not isinstance(dtype, DType):
        raise ValueError(f"it has a tensor of type {short_repr(dtype)}")
    properties = TensorProperties(dtype, requires_grad=requires_grad is True)
    tensor = TensorStorageMetadata(properties, Size(record.get("size")), [])
    tensor.chunks += [checked_chunk(one.get("offsets"), one.get("sizes"), tensor) for one in record.get("chunks")]
    return tensor


def _index(record: _Record) -> MetadataIndex:
    offset = record.state.get("offset")
    return MetadataIndex(str(record.get("fqn")), None if offset is None else Size(offset))


def _place(record: _Record) -> StorageInfo:
    if record.state.get("transform_descriptors"):
        raise ValueError("its items are transformed by extensions of PyTorch's, which there are not here")
    return StorageInfo(checked_name(record.get("relative_path")), record.get("offset"), record.get("length"))


def checked_chunk(offsets: Json, sizes: Json, tensor: TensorStorageMetadata) -> ChunkStorageMetadata:
    """A chunk of a tensor; `ValueError` if it cannot be one."""
    dims = len(tensor.size)
    if not all(is_shape(x) and len(x) == dims for x in (tensor.size, offsets, sizes)):
        raise ValueError(f"it has a tensor of size {list(tensor.size)} with an impossible chunk")
    return ChunkStorageMetadata(Size(offsets), Size(sizes))


def checked_name(name: object) -> str:
    """The name of a file; `ValueError` if it leads out of the folder."""
    if not isinstance(name, str) or "/" in name or name in ("", ".", ".."):
        raise ValueError(f"its file {name!r} is none of its folder")
    return name
