"""What a checkpoint holds: the tensors, the chunks in which they are stored, and the objects beside them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias

from weft._base.dtype import DType
from weft._base.size import Size
from weft._base.state import default_dtype
from weft._base.types import Arg, SavedState
from weft._tensor.tensor import Tensor


@dataclass
class ChunkStorageMetadata:
    """A box of a tensor that is stored by itself: where it begins, and its sizes."""

    offsets: Size
    sizes: Size

    @property
    def numel(self) -> int:
        """The number of its elements."""
        return prod(self.sizes)


@dataclass
class TensorProperties:
    """How the elements of a tensor are stored."""

    dtype: DType = field(default_factory=default_dtype)

    @staticmethod
    def create_from_tensor(tensor: Tensor) -> TensorProperties:
        """The properties of a tensor."""
        return TensorProperties(tensor.dtype)


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
