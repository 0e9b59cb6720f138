"""What a checkpoint holds: the tensors, the chunks in which they are stored, and the objects beside them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from typing import TypeAlias

from weft._base import layout as names
from weft._base.dtype import DType
from weft._base.size import Size
from weft._base.state import default_dtype
from weft._base.types import Arg, SavedState
from weft._tensor.tensor import Tensor
from weft.errors import CheckpointError


@dataclass
class ChunkStorageMetadata:
    """A box of a tensor that is stored by itself: where it begins, and its sizes."""

    offsets: Size
    sizes: Size

    @property
    def numel(self) -> int:
        """The number of its elements."""
        return prod(self.sizes)


class _MEM_FORMAT_ENCODING(Enum):
    """How the pickle of a tensor's properties says its memory format."""

    TORCH_CONTIGUOUS_FORMAT = 0
    TORCH_CHANNELS_LAST = 1
    TORCH_PRESERVE_FORMAT = 2


_ENCODINGS = {
    names.contiguous_format: _MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT,
    names.channels_last: _MEM_FORMAT_ENCODING.TORCH_CHANNELS_LAST,
    names.preserve_format: _MEM_FORMAT_ENCODING.TORCH_PRESERVE_FORMAT,
}


@dataclass
class TensorProperties:
    """How the elements of a tensor are stored. Loading uses the type alone."""

    dtype: DType = field(default_factory=default_dtype)
    layout: names.layout = names.strided
    requires_grad: bool = False
    memory_format: names.memory_format = names.contiguous_format
    pin_memory: bool = False

    def __getstate__(self) -> tuple[DType, names.layout, bool, _MEM_FORMAT_ENCODING, bool]:
        encoding = _ENCODINGS.get(self.memory_format)
        if encoding is None:
            raise CheckpointError(f"Invalid torch.memory_format: {self.memory_format}")
        return self.dtype, self.layout, self.requires_grad, encoding, self.pin_memory

    def __setstate__(self, state: tuple[DType, names.layout, bool, _MEM_FORMAT_ENCODING, bool]) -> None:
        self.dtype, self.layout, self.requires_grad, encoding, self.pin_memory = state
        self.memory_format = next(name for name, code in _ENCODINGS.items() if code is encoding)

    @staticmethod
    def create_from_tensor(tensor: Tensor) -> TensorProperties:
        """The properties of a tensor."""
        return TensorProperties(tensor.dtype, tensor.layout, tensor.requires_grad, pin_memory=tensor.is_pinned())


@dataclass
class TensorStorageMetadata:
    """A tensor: its element type, the size of all of it, and its chunks, which do not overlap and leave nothing out."""

    properties: TensorProperties
    size: Size
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    """An object that is no tensor."""


STORAGE_TYPES = TensorStorageMetadata | BytesStorageMetadata
STATE_DICT_TYPE: TypeAlias = SavedState


@dataclass
class StorageMeta:
    """What a storage tells planners of itself."""

    checkpoint_id: str | os.PathLike[str] | None = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list[str] = field(default_factory=list[str])


@dataclass
class Metadata:
    """The contents of a checkpoint. `planner_data` and `storage_data` belong to the planner and the storage."""

    state_dict_metadata: dict[str, STORAGE_TYPES]
    planner_data: Arg = None
    storage_data: Arg = None
    storage_meta: StorageMeta | None = None
    version: str | None = None


@dataclass(frozen=True)
class MetadataIndex:
    """An item of a checkpoint: a key and, for a tensor, the offset of a chunk. `index` is a hint, and not compared."""

    fqn: str
    offset: Size | None = None
    index: int | None = field(hash=False, compare=False, default=None)

    def __init__(self, fqn: str, offset: Sequence[int] | None = None, index: int | None = None) -> None:
        object.__setattr__(self, "fqn", fqn)
        object.__setattr__(self, "offset", None if offset is None else Size(offset))
        object.__setattr__(self, "index", index)
