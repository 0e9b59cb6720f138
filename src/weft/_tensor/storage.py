"""Storages: the memory of tensors and their aliases, as bytes or as elements of one type."""

from __future__ import annotations

import builtins
import os
import weakref
from collections.abc import Iterator, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, Self

import numpy as np

from weft._base import dtype as dtypes
from weft._base.capture import active_capture
from weft._base.device import CPU, META, device
from weft._base.dtype import DType, uint8
from weft._base.site import warn_user
from weft._base.state import default_dtype, using
from weft._base.types import Arg
from weft._lazy.runtime import telling_of_memory
from weft._tensor.addresses import start_of
from weft._tensor.alias import owner_of
from weft._tensor.base import Alias, new_handle
from weft._tensor.convert import from_host, tensor
from weft._tensor.origins import origin_of
from weft._tensor.shared import MappedFile, file_tensor, move_to_segment, shared_by
from weft._tensor.sharing import resize_storage
from weft._tensor.strided import strided_view
from weft._tensor.tensor import Tensor
from weft._tensor.view import attach, write
from weft.errors import ArgumentError, IndexRangeError, OutOfRangeError, ShapeError, ValueRangeError
from weft.ops._type_names import scalar_name


def storage_of(tensor: Tensor) -> UntypedStorage:
    """The storage that a tensor owns, or shares as a view: the same object as long as somebody holds it."""
    owner = owner_of(tensor)
    storage = None if owner._storage is None else owner._storage()
    return _new_storage(owner) if storage is None else storage


def _new_storage(owner: Tensor) -> UntypedStorage:
    handle: Tensor = new_handle(Tensor)
    handle._value = None  # it is only asked who the owner is
    attach(handle, Alias(owner, (), False))
    result: UntypedStorage = object.__new__(UntypedStorage)
    result.handle = handle
    owner._storage = weakref.ref(result)
    return result


class _Storage:
    """What storages of bytes and of elements have in common: a sequence of numbers that tensors share."""

    element_type: DType

    def elements(self) -> Tensor:
        """All elements, as a view."""
        raise NotImplementedError

    def untyped(self) -> UntypedStorage:
        """The storage as bytes."""
        raise NotImplementedError

    @property
    def device(self) -> device:
        """The device of the storage."""
        return self.untyped().owner.device

    @property
    def _cdata(self) -> int:
        return start_of(self.untyped().owner)

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.element_type.itemsize

    def nbytes(self) -> int:
        """The number of bytes."""
        return self.untyped().owner.nbytes

    def size(self) -> int:
        """The number of elements."""
        return self.nbytes() // self.element_type.itemsize

    __len__ = size

    def data_ptr(self) -> int:
        """The address of the first byte; 0 for an empty storage."""
        return self._cdata if self.nbytes() and self.device is not META else 0

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            raise OutOfRangeError(
                f"slices are only supported in UntypedStorage.__getitem__, not for {self.element_type}"
            )
        return self.elements()[self._place(index)].item()

    def __setitem__(self, index: Any, value: Any) -> None:
        with using(grad=False):
            self.elements()[index if isinstance(index, slice) else self._place(index)] = value

    def _place(self, index: Any) -> int:
        if not isinstance(index, int):
            raise ArgumentError(f"can't index a {type(self).__name__} with {type(index).__name__}")
        if not -self.size() <= index < self.size():
            raise IndexRangeError(f"index {index} out of range for storage of size {self.size()}")
        return index

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        """The elements as Python numbers."""
        return self.elements().tolist()

    def fill_(self, value: Any) -> Self:
        """Write a number everywhere."""
        with using(grad=False):
            self.elements().fill_(value)
        return self

    def copy_(self, source: _Storage, non_blocking: bool = False) -> Self:
        """Write the elements of another storage of the same size, cast to this type."""
        del non_blocking
        if source.size() != self.size():
            raise ShapeError(f"size mismatch, got {source.size()} elements for a storage of {self.size()}")
        with using(grad=False):
            self.elements().copy_(source.elements())
        return self

    def _resize(self, nbytes: int) -> None:
        owner = self.untyped().owner
        count, rest = divmod(nbytes, owner.itemsize)
        if rest or nbytes < 0:
            raise ValueRangeError(
                f"resize_: {nbytes} bytes are not a number of whole {scalar_name(owner.dtype)} elements of "
                f"{owner.itemsize} bytes, which the tensors of this storage have"
            )
        active_capture().needs_value("to resize a storage")
        resize_storage(owner, count)

    def _like(self, elements: Tensor) -> Self:
        """A storage of this kind of the bytes of a new tensor."""
        raise NotImplementedError

    def clone(self) -> Self:
        """A copy."""
        return self._like(self.elements().detach().clone())

    def to(self, *, device: Any, non_blocking: bool = False) -> Self:
        """The storage on a device: itself if it is there."""
        del non_blocking
        moved = self.elements().detach().to(device)
        return self if moved.device == self.device else self._like(moved)

    def cpu(self) -> Self:
        """The storage in the host's memory."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Self:
        """The storage on a GPU; `RuntimeError` if there is none."""
        return self.to(device="cuda" if device is None else device, non_blocking=non_blocking)

    def __copy__(self) -> Self:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copy = self._like(self.untyped().handle.__deepcopy__(memo))
        memo[id(self)] = copy
        return copy

    def __repr__(self) -> str:
        body = "..." if self.device is META else " " + "\n ".join(map(str, self.tolist()))
        return f"{body}\n{self._summary()}"

    def _summary(self) -> str:
        raise NotImplementedError

    def get_device(self) -> int:
        """The index of the device; -1 for the CPU."""
        return -1 if self.device.index is None else self.device.index

    @property
    def is_cuda(self) -> bool:
        """Whether the storage is on a GPU."""
        return self.device.type == "cuda"

    @property
    def filename(self) -> str | None:
        """The path of the file whose bytes these are; None for all other storages."""
        by = shared_by(self.untyped().owner)
        return by.filename if isinstance(by, MappedFile) else None

    def resizable(self) -> bool:
        """True: the size of every storage can be changed."""
        return True

    def is_shared(self) -> bool:
        """Whether other processes may see it, as `Tensor.is_shared` says."""
        return shared_by(self.untyped().owner) is not None

    def share_memory_(self) -> Self:
        """Move the elements to memory that processes share, as `Tensor.share_memory_` does."""
        move_to_segment(self.untyped().owner)
        return self

    def is_pinned(self, device: Any = None) -> bool:
        """False: XLA manages transfers by itself."""
        del device
        return False

    def pin_memory(self, device: Any = None) -> Self:
        """The storage itself: XLA manages transfers by itself."""
        del device
        return self


class UntypedStorage(_Storage):
    """The memory of a tensor and its aliases, in bytes: of a number of zeros, or with the bytes of a sequence.

    Tensors are made on it by `Tensor.set_`, and find it by `Tensor.untyped_storage()`.
    """

    element_type = uint8
    handle: Tensor  # a view of all elements, which finds their owner

    def __init__(self, size: int | Sequence[int] = 0, *, device: Any = None) -> None:
        if isinstance(size, int):
            with telling_of_memory(CPU):
                zeros = np.zeros(size, np.uint8)
            whole = from_host(zeros, device)
        else:
            whole = tensor(size, dtype=uint8, device=device)
        self.handle = storage_of(whole).handle
        whole._storage = weakref.ref(self)

    @staticmethod
    def from_buffer(
        buffer: Any, *, byte_order: str = "native", count: int = -1, offset: int = 0, dtype: DType | None = None
    ) -> UntypedStorage:
        """A copy of a buffer's elements of type `dtype`, in `byte_order` "native", "little" or "big"."""
        return storage_of(_from_buffer(buffer, byte_order, count, offset, dtype))

    @staticmethod
    def from_file(filename: str | os.PathLike[str], shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The first bytes of a file, which are read from it when they are needed.

        With `shared` they are written to it, too; else writes to the storage do not change the file, which must not
        change then.
        """
        return storage_of(file_tensor(os.fspath(filename), nbytes, uint8, shared=shared))

    @property
    def owner(self) -> Tensor:
        return owner_of(self.handle)

    @property
    def _checkpoint_offset(self) -> int | None:
        """Where the bytes of a storage on the meta device lie in the file from which it was loaded."""
        origin = origin_of(self.handle)
        return None if origin is None else origin.start

    def elements(self) -> Tensor:
        return elements_of(self, uint8)

    def untyped(self) -> UntypedStorage:
        """The storage itself."""
        return self

    def _like(self, elements: Tensor) -> UntypedStorage:
        return storage_of(elements)

    def __getitem__(self, index: Any) -> Any:
        return storage_of(self.elements()[index].clone()) if isinstance(index, slice) else super().__getitem__(index)

    def resize_(self, size: int) -> UntypedStorage:
        """Change the number of bytes, in place. New bytes are 0.

        Tensors on the storage keep their sizes. Those that need more than there is cannot be read (`RuntimeError`)
        until the storage is large enough again: so `resize_(0)` frees the memory of a tensor that is needed later.
        """
        self._resize(size)
        return self

    @classmethod
    def _new_shared(cls, size: int, *, device: Any = "cpu") -> UntypedStorage:
        """Zeros in memory that processes share."""
        return cls(size, device=device).share_memory_()

    def byteswap(self, dtype: DType) -> None:
        """Reverse the bytes of each element of type `dtype`, in place."""
        with using(grad=False):
            rows = self.elements().view(-1, dtype.itemsize)
            write(rows, rows.flip(1)._read())

    def new(self) -> UntypedStorage:
        """An empty storage on the same device."""
        return UntypedStorage(device=self.device)

    def type(self, dtype: str | None = None, non_blocking: bool = False) -> str:
        """The name of the class."""
        del non_blocking
        if dtype not in (None, "torch.storage.UntypedStorage"):
            raise ArgumentError(f"an untyped storage has no type to convert to {dtype!r}; make a TypedStorage of it")
        return "torch.storage.UntypedStorage"

    def _summary(self) -> str:
        return f"[torch.storage.UntypedStorage(device={self.device}) of size {self.nbytes()}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return storage_of, (self.owner.detach(),)


ForkingPickler.register(UntypedStorage, UntypedStorage.__reduce__)

_WARNING = (
    "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only storage class. "
    "This should only matter to you if you are using storages directly.  To access UntypedStorage directly, use "
    "tensor.untyped_storage() instead of tensor.storage()"
)


class TypedStorage(_Storage):
    """A storage as elements of one type: of a number of zeros, with the elements of a sequence, or of a storage."""

    def __init__(
        self,
        size: int | Sequence[Any] = 0,
        *,
        wrap_storage: object = None,
        dtype: DType | None = None,
        device: Any = None,
        _internal: bool = False,
    ) -> None:
        if not _internal:
            warn_user(_WARNING)
        self.element_type = default_dtype() if dtype is None else dtype
        if wrap_storage is not None:
            if not isinstance(wrap_storage, UntypedStorage):
                raise ArgumentError(f"wrap_storage must be UntypedStorage, not {type(wrap_storage).__name__}")
            self.wrapped = wrap_storage
        elif isinstance(size, int):
            self.wrapped = UntypedStorage(size * self.element_type.itemsize, device=device)
        else:
            self.wrapped = storage_of(tensor(size, dtype=self.element_type, device=device))

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        return self.element_type

    @property
    def _untyped_storage(self) -> UntypedStorage:
        return self.wrapped

    @classmethod
    def from_buffer(cls, buffer: Any, *, dtype: DType, byte_order: str = "native", **place: int) -> TypedStorage:
        """A copy of a buffer's elements of this type, as `UntypedStorage.from_buffer`."""
        return typed(UntypedStorage.from_buffer(buffer, byte_order=byte_order, dtype=dtype, **place), dtype)

    def elements(self) -> Tensor:
        return elements_of(self.wrapped, self.element_type)

    def untyped(self) -> UntypedStorage:
        """The storage as bytes."""
        return self.wrapped

    def _like(self, elements: Tensor) -> TypedStorage:
        return typed(storage_of(elements), self.element_type)

    def resize_(self, size: int) -> TypedStorage:
        """Change the number of elements, in place, as `UntypedStorage.resize_`."""
        self._resize(size * self.element_type.itemsize)
        return self

    def type(self, dtype: DType | str | None = None, non_blocking: bool = False) -> Any:
        """The elements as another type; without it, the name of the class of storages of this type."""
        del non_blocking
        if dtype is None:
            return f"torch.{scalar_name(self.element_type)}Storage"
        return _cast(self, CLASSES[dtype.removeprefix("torch.")].dtype if isinstance(dtype, str) else dtype)

    def pickle_storage_type(self) -> str:
        """The name by which PyTorch's files call storages of this type."""
        return f"{scalar_name(self.element_type)}Storage"

    def _summary(self) -> str:
        return f"[torch.storage.TypedStorage(dtype={self.element_type}, device={self.device}) of size {self.size()}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return typed, (self.wrapped, self.element_type)


def typed(storage: UntypedStorage, dtype: DType) -> TypedStorage:
    """A storage as elements of a type, without a warning."""
    result: TypedStorage = object.__new__(TypedStorage)
    result.wrapped, result.element_type = storage, dtype
    return result


def elements_of(storage: UntypedStorage, dtype: DType, size: builtins.int | None = None) -> Tensor:
    """The elements of a storage as a view outside the tape, by default all."""
    count = storage.nbytes() // dtype.itemsize if size is None else size
    with using(grad=False):
        return strided_view(storage.owner, (count,), (1,), 0, dtype=dtype)


def _cast(storage: _Storage, dtype: DType) -> TypedStorage:
    """A copy of the elements as another type."""
    elements = storage.elements().detach()
    return typed(storage_of(elements.clone() if dtype is elements.dtype else elements.to(dtype)), dtype)


def _from_buffer(buffer: Any, order: str, count: int, offset: int, dtype: DType | None) -> Tensor:
    if dtype is None:
        raise OutOfRangeError("from_buffer(): argument 'dtype' cannot be None")
    if order not in ("native", "little", "big"):
        raise ValueRangeError(f"Unknown byte_order value '{order}'; it is native, little or big")
    elements = np.frombuffer(buffer, dtype.numpy.newbyteorder(order), count, offset)
    return from_host(elements.astype(dtype.numpy))


_TYPES = {
    "Bool": dtypes.bool_,
    "Byte": dtypes.uint8,
    "Char": dtypes.int8,
    "Short": dtypes.int16,
    "Int": dtypes.int32,
    "Long": dtypes.int64,
    "Half": dtypes.float16,
    "BFloat16": dtypes.bfloat16,
    "Float": dtypes.float32,
    "Double": dtypes.float64,
    "ComplexFloat": dtypes.complex64,
    "ComplexDouble": dtypes.complex128,
}
"""Types of elements by PyTorch's names."""


def _casting(dtype: DType) -> Any:
    def cast(self: _Storage) -> TypedStorage:
        return _cast(self, dtype)

    cast.__doc__ = f"A copy of the elements as `{dtype.name}`."
    return cast


for _word, _dtype in _TYPES.items():
    setattr(_Storage, _word.lower().replace("complex", "complex_"), _casting(_dtype))


# --- PyTorch's older classes ------------------------------------------------------------------------------------


_INT_OR_SEQUENCE: tuple[type, ...] = (builtins.int, Sequence)


class _LegacyType(type):
    """A class whose instances are the typed storages of one element type."""

    dtype: DType

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TypedStorage) and instance.dtype is cls.dtype

    def __call__(cls, size: Arg = 0) -> TypedStorage:
        if not isinstance(size, _INT_OR_SEQUENCE):
            raise ArgumentError(f"{cls.__name__}() takes a size or a sequence of numbers, not {type(size).__name__}")
        return TypedStorage(size, dtype=cls.dtype)

    def from_buffer(cls, buffer: Any, **options: Any) -> TypedStorage:
        """A copy of a buffer's elements."""
        return TypedStorage.from_buffer(buffer, dtype=cls.dtype, **options)

    _from_buffer = from_buffer  # libraries call it by this name


CLASSES = {
    f"{word}Storage": _LegacyType(
        f"{word}Storage", (), {"dtype": dtype, "__module__": "torch", "__doc__": f"Storages of `{dtype}`."}
    )
    for word, dtype in _TYPES.items()
}
"""The classes by name. A class called with a size or elements makes a storage of its type."""


def storage_class(dtype: DType) -> _LegacyType:
    """The class of storages of a type."""
    return CLASSES[f"{scalar_name(dtype)}Storage"]


def __getattr__(name: str) -> Any:
    try:
        return CLASSES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
