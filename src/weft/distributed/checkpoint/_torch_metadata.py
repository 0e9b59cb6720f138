"""The file `.metadata` as PyTorch's own writer makes it: a pickle. Reading it runs no code."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NoReturn

from weft._base.dtype import DTYPES, DType
from weft._base.guards import is_dict
from weft._base.size import Size
from weft._base.types import AnyCallable, PyTree
from weft._checkpoint.pickled import Global, Unpickler, short_repr
from weft._checkpoint.safe import Plain, trusted_global
from weft.distributed.checkpoint._metadata_file import StorageInfo, checked_chunk, checked_name
from weft.distributed.checkpoint.metadata import (
    STORAGE_TYPES,
    BytesStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from weft.errors import CheckpointError, PickleError

PICKLE = b"\x80"
"""How a pickle begins."""

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


def read_torch_metadata(path: Path) -> Metadata:
    """The metadata in a file of PyTorch's. `CheckpointError` if it is none."""
    plain = Plain(path.stat().st_size)
    makers: dict[str, AnyCallable] = {f"{_PACKAGE}{name}": partial(_Record, name) for name in _RECORDS}
    makers |= dict.fromkeys(_IGNORED, _nothing)
    table = plain.table() | {name: Global(name, make) for name, make in makers.items()}
    table |= {f"torch.{dtype.name}": dtype for dtype in DTYPES}
    # Only names in the table, and those that the caller trusts, are looked up: no other function of the pickle is
    # called.
    unpickler = Unpickler(lambda name: table.get(name) or trusted_global(name), _no_storage, _set_state, plain.keys)
    try:
        with path.open("rb") as file:
            return _metadata(unpickler.load(file))
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
    planner_data = record.state.get("planner_data")
    return Metadata(entries, planner_data if isinstance(planner_data, Mapping) else None, places)


def _entry(record: _Record) -> STORAGE_TYPES:
    if record.name == "metadata.BytesStorageMetadata":
        return BytesStorageMetadata()
    dtype = record.get("properties").state[0]
    if not isinstance(dtype, DType):
        raise ValueError(f"it has a tensor of type {short_repr(dtype)}")
    tensor = TensorStorageMetadata(TensorProperties(dtype), Size(record.get("size")), [])
    tensor.chunks += [checked_chunk(one.get("offsets"), one.get("sizes"), tensor) for one in record.get("chunks")]
    return tensor


def _index(record: _Record) -> MetadataIndex:
    offset = record.state.get("offset")
    return MetadataIndex(str(record.get("fqn")), None if offset is None else Size(offset))


def _place(record: _Record) -> StorageInfo:
    if record.state.get("transform_descriptors"):
        raise ValueError("its items are transformed by extensions of PyTorch's, which there are not here")
    return StorageInfo(
        checked_name(record.get("relative_path")), int(record.get("offset")), int(record.get("length")), archived=True
    )
