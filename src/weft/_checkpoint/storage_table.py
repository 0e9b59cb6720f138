"""The storages of a file that is being written: which tensors share one, and where each tensor lies in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from weft._base.device import META
from weft._base.dtype import DType
from weft._checkpoint.buffers import bytes_of, elements_of
from weft._checkpoint.packages import location_tag
from weft._checkpoint.torch_names import STORAGES, UNTYPED, TorchGlobal
from weft._tensor.alias import layout_of, owner_of
from weft._tensor.storage import TypedStorage, UntypedStorage, storage_of
from weft._tensor.tensor import Tensor
from weft.ops._strides import Layout, row_major

_SEVERAL_TYPES = (
    "Cannot save multiple tensors or storages that view the same data as different types; save one of them, or the "
    "untyped storage, storage.untyped()"
)


@dataclass(frozen=True, eq=False)
class StorageRecord:
    """A storage in a file.

    key     its name there
    name    the class of its elements, by PyTorch's name; with `UNTYPED`, tensors on it have their own types
    source  the tensor that has its elements
    home    the name of its location
    """

    key: str
    name: TorchGlobal
    source: Tensor
    home: str

    @property
    def persistent_id(self) -> tuple[str, TorchGlobal, str, str, int]:
        """How a pickle refers to it; the number is that of elements, or of bytes if it is untyped."""
        return "storage", self.name, self.key, self.home, self.nbytes // self.name.itemsize

    @property
    def nbytes(self) -> int:
        """The size of the elements in bytes."""
        return self.source.nbytes

    @property
    def is_typed(self) -> bool:
        """Whether its class says of which type its elements are."""
        return self.name is not UNTYPED

    def content(self) -> memoryview:
        """The elements, little-endian, fetched from their device now."""
        return bytes_of(elements_of(self.source))


class StorageAgain(Exception):
    """Pickling has to begin anew, with a table that knows more about which storages are shared."""

    def __init__(self, table: StorageTable) -> None:
        super().__init__()
        self.table = table


class StorageTable:
    """The storages of one pickle, in the order in which it refers to them.

    A view whose base is not saved is stored alone, without the rest of its storage. Whether another tensor on that
    storage will come is not known when the view is pickled. If one comes, pickling begins anew.

    shared   owners of storages that are stored whole, because several tensors show parts of them
    untyped  owners of storages that tensors of several types show
    """

    def __init__(self, shared: frozenset[int] = frozenset(), untyped: frozenset[int] = frozenset()) -> None:
        self._shared = shared
        self._untyped = untyped
        self._whole: dict[int, StorageRecord] = {}  # by the identity of the owner
        self._parts: dict[int, tuple[Tensor, StorageRecord]] = {}  # views that were stored alone, by their owner's
        self._records: list[StorageRecord] = []
        self._homes: dict[int, str] = {}  # where the owners of fake tensors claim to be
        self._kept: list[Tensor] = []  # identities are compared as long as the pickle is written

    def __iter__(self) -> Iterator[StorageRecord]:
        return iter(self._records)

    def of_tensor(
        self, tensor: Tensor, name: TorchGlobal | None = None, *, exact: bool = False
    ) -> tuple[StorageRecord, Layout]:
        """The storage of a tensor, and the tensor's place in it; `name` is given for the integers of quantized ones.

        If `exact`, a view is stored with all of its storage.
        """
        self._kept.append(tensor)
        owner = owner_of(tensor)
        if exact and tensor is not owner:
            self._homes.setdefault(id(owner), str(tensor.device))
            return self._record_of(owner, tensor.dtype, name), layout_of(tensor, exact=True)
        whole = Layout(tuple(tensor.shape), row_major(tuple(tensor.shape)), 0, tensor.dtype)
        if not _is_part(tensor, owner):
            return self._new(tensor, name or STORAGES[tensor.dtype]), whole
        places = layout_of(tensor, exact=True)
        covers = places.is_contiguous and tensor.nbytes == owner.nbytes
        key = id(owner)
        if not covers and key not in self._shared and key not in self._whole:
            earlier = self._parts.get(key)
            if earlier is not None and earlier[0] is tensor:
                return earlier[1], whole
            self._require_no_part(key)
            record = self._new(tensor, name or STORAGES[tensor.dtype])
            self._parts[key] = tensor, record
            return record, whole
        self._require_no_part(key)
        return self._record_of(owner, tensor.dtype, name), places

    def of_storage(self, storage: TypedStorage | UntypedStorage) -> StorageRecord:
        """The record of a storage that is saved by itself."""
        owner = storage.untyped().owner
        self._kept.append(owner)
        self._require_no_part(id(owner))
        if not isinstance(storage, TypedStorage):
            return self._record_of(owner, None, None)
        if id(owner) in self._untyped:
            raise TypeError(_SEVERAL_TYPES)
        return self._record_of(owner, storage.dtype, None)

    def _require_no_part(self, key: int) -> None:
        """Begin anew if a part of an owner's storage is stored alone, now that it turns out to be shared."""
        if key in self._parts:
            raise StorageAgain(StorageTable(self._shared | {key}, self._untyped))

    def _record_of(self, owner: Tensor, dtype: DType | None, name: TorchGlobal | None) -> StorageRecord:
        key = id(owner)
        if not owner.nbytes:  # tensors of any types may share no elements
            return self._new(owner, name or STORAGES[dtype])
        wanted = STORAGES[None if key in self._untyped else dtype] if name is None else name
        record = self._whole.get(key)
        if record is None:
            record = self._whole[key] = self._new(owner, wanted)
        elif record.name is not wanted:
            if owner.device is META:  # which has no elements to disagree about
                return self._new(owner, wanted)
            if record.name.itemsize != wanted.itemsize and record.is_typed and wanted is not UNTYPED:
                raise TypeError(_SEVERAL_TYPES)
            raise StorageAgain(StorageTable(self._shared, self._untyped | {key}))
        return record

    def _new(self, source: Tensor, name: TorchGlobal) -> StorageRecord:
        home = self._homes.get(id(source)) or location_tag(storage_of(source))
        record = StorageRecord(str(len(self._records)), name, source, home)
        self._records.append(record)
        return record


def _is_part(tensor: Tensor, owner: Tensor) -> bool:
    """Whether the elements of a tensor lie in its owner's storage as they are.

    Views that change the storage's numbers (conjugated ones) or are larger than it (expanded ones) are stored alone.
    """
    if tensor is owner:
        return True
    return owner._read().aval.owner is None and not layout_of(tensor).changed and tensor.nbytes <= owner.nbytes
