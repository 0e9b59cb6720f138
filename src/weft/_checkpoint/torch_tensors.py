"""Tensors as PyTorch's pickles describe them: a storage, an offset in it, sizes and strides."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from sys import getrefcount
from typing import ClassVar

import numpy as np

from weft._base.device import META, device
from weft._base.dtype import DType, NamedDType, complex32, complex64, float16, uint8
from weft._base.guards import is_plain_dict, is_plain_tuple
from weft._base.types import AnyCallable
from weft._checkpoint.buffers import Bytes, array_on, tensor_of, without_data
from weft._checkpoint.keys import Unpickled
from weft._checkpoint.map_location import Locate
from weft._checkpoint.pickled import Global
from weft._checkpoint.storages import MOST_SIZE, view_of_storage
from weft._checkpoint.torch_functions import CLASSES as CLASSES
from weft._checkpoint.torch_functions import DIM_RANGE, FUNCTIONS, check_place, class_of
from weft._checkpoint.torch_functions import Unset as Unset
from weft._checkpoint.torch_layouts import (
    rebuilt_quantized,
)
from weft._checkpoint.torch_names import (
    FROM_CPU,
    QUANTIZED_TENSOR,
    TYPED_TENSOR,
    UNTYPED_TENSOR,
    WRAPPER_TENSOR,
)
from weft._lazy import refcounts
from weft._lazy.aligned import room
from weft._tensor.alias import owner_of
from weft._tensor.legacy_types import make_wrapper_subclass
from weft._tensor.origins import note_origin
from weft._tensor.storage import TypedStorage, UntypedStorage, typed
from weft._tensor.tensor import Tensor
from weft.errors import PickleError
from weft.ops._strides import Layout

_NO_BYTES: Bytes = np.empty(0, np.uint8)


@dataclass(frozen=True)
class Storage:
    """A storage in a file. `dtype` is None if it is untyped, so that its tensors have their own types.

    `part` is the start and the length, in elements, of a part that stands for a storage of its own.
    """

    key: str
    dtype: DType | None
    location: str
    nbytes: int
    part: tuple[int, int] | None = None

    @property
    def count(self) -> int:
        """The number of elements of the storage or its part."""
        return self.nbytes // (self.dtype.itemsize if self.dtype else 1) if self.part is None else self.part[1]


class TensorBuilder:
    """Builds the tensors of one file. A storage is read once; tensors on it share their elements.

    fetch   reads the bytes of a storage
    locate  gives the device of a storage, as `map_location` says
    limit   bytes that copies of parts of storages may take together
    big     whether elements are big-endian
    start   gives the place of a storage in the file, which those on the meta device keep
    fake    whether tensors are built on the meta device, and say that they are where they were saved
    """

    def __init__(
        self,
        fetch: Callable[[Storage], Bytes],
        locate: Locate,
        limit: int,
        *,
        big: bool = False,
        start: Callable[[Storage], int] | None = None,
        fake: bool = False,
    ) -> None:
        self._fetch = fetch
        self._start = start
        self._fake = fake
        self._locate = locate
        self._left = limit
        self._big = big
        self._contents: dict[str, Bytes] = {}
        self._places: dict[str, device] = {}
        self._first: dict[str, tuple[Tensor, Layout]] = {}  # the first tensor on a storage, while it is the only one
        self._shared: dict[str, Tensor] = {}  # storages with several tensors
        self._blanks: dict[object, TypedStorage | UntypedStorage] = {}  # storages without elements, which code may hold
        self._records: dict[int, Storage] = {}  # what they stand for, by identity

    def table(self) -> dict[str, Global]:
        """What stands for the globals of `NAMES`."""
        methods = {name: partial(make, self) for name, make in self.METHODS.items()}
        table = {name: Global(name, make) for name, make in (methods | FUNCTIONS).items()}
        return table | {DIM_RANGE: Global(DIM_RANGE, None, lambda: None)}

    def storage(self, storage: Storage) -> TypedStorage | UntypedStorage:
        """A storage by itself, which tensors on it share."""
        dtype = storage.dtype or uint8
        places = Layout((storage.count,), (1,), storage.part[0] if storage.part else 0, dtype)
        elements = self._on_storage(storage, places, self._device_of(storage))
        untyped = (elements if storage.part is None else elements.clone()).untyped_storage()
        return untyped if storage.dtype is None else typed(untyped, dtype)

    def standing_for(self, storage: Storage) -> TypedStorage | UntypedStorage:
        """The storage for a pickle whose code may be run; it has its elements once `fill` is called."""
        key = (storage.key, storage.part)
        blank = self._blanks.get(key)
        if blank is None:
            blank = object.__new__(UntypedStorage if storage.dtype is None else TypedStorage)
            self._blanks[key] = blank
            self._records[id(blank)] = storage
        return blank

    def fill(self) -> None:
        """Give those storages their elements that the object refers to by themselves, not only by its tensors."""
        while self._blanks:
            _, blank = self._blanks.popitem()
            if getrefcount(blank) == refcounts.IN_A_LOCAL:
                continue
            storage = self.storage(self._records[id(blank)])
            vars(blank).update(vars(storage))
            if isinstance(blank, UntypedStorage):
                blank.owner._storage = weakref.ref(blank)

    def _record(self, storage: Unpickled) -> Storage | None:
        return storage if isinstance(storage, Storage) else self._records.get(id(storage))

    def _plain(self, storage: Unpickled, offset: Unpickled, size: Unpickled, stride: Unpickled) -> Tensor:
        return self._version_2(storage, offset, size, stride, False, None)

    def _version_2(
        self,
        storage: Unpickled,
        offset: Unpickled,
        size: Unpickled,
        stride: Unpickled,
        requires_grad: Unpickled,
        _: Unpickled,
        metadata: Unpickled = None,
    ) -> Tensor:
        storage = self._record(storage)
        if storage is None or storage.dtype is None:
            raise PickleError("its pickle makes a tensor of something else than a storage of elements")
        return self._version_3(storage, offset, size, stride, requires_grad, None, storage.dtype, metadata)

    def _quantized(
        self,
        storage: Unpickled,
        offset: Unpickled,
        size: Unpickled,
        stride: Unpickled,
        grid: Unpickled,
        requires_grad: Unpickled,
        _: Unpickled,
    ) -> Tensor:
        """A quantized tensor: its integers have a storage. `grid` is a scheme with scales, zero points and an axis."""
        del requires_grad
        integers = self._version_2(storage, offset, size, stride, False, None)
        return rebuilt_quantized(integers, grid)

    def _version_3(
        self,
        storage: Unpickled,
        offset: Unpickled,
        size: Unpickled,
        stride: Unpickled,
        grad: Unpickled,
        _: Unpickled,
        dtype: Unpickled,
        metadata: Unpickled = None,
    ) -> Tensor:
        storage = self._record(storage)
        if storage is None or not isinstance(dtype, DType):
            raise PickleError("its pickle makes a tensor of something else than a storage and a type")
        check_place(storage.nbytes // dtype.itemsize if storage.part is None else storage.count, offset, size, stride)
        offset += storage.part[0] if storage.part is not None else 0
        bits = metadata if is_plain_dict(metadata) else {}
        conj, neg = bits.get("conj") is True, bits.get("neg") is True
        target = self._device_of(storage)
        places = Layout(tuple(size), tuple(stride), offset, dtype)
        # Bits of conjugation and negation, and elements shown several times, are computed into memory of their own.
        if isinstance(dtype, NamedDType):
            tensor = self._named(storage, places, target)
        elif conj or neg or prod(size) * dtype.itemsize > storage.nbytes:
            tensor = self._new(storage, places, target)
            tensor = tensor.conj().resolve_conj() if conj else tensor
            tensor = -tensor if neg else tensor
        else:
            tensor = self._on_storage(storage, places, target)
        return tensor.requires_grad_(grad is True)

    def _new(self, storage: Storage, places: Layout, target: device) -> Tensor:
        """A tensor with memory of its own, of elements of a storage."""
        content = _NO_BYTES if target is META else self._cut(storage, places)
        array = array_on(target, places.dtype, places.sizes, content, big=self._big)
        return tensor_of(array, places.sizes, places.dtype, target)

    def _named(self, storage: Storage, places: Layout, target: device) -> Tensor:
        """A tensor of a type that no tensor has here: pairs of half-precision numbers become `complex64`."""
        if places.dtype is not complex32:
            raise PickleError(
                f"it holds elements of type {places.dtype}, which there is not here; convert the tensors there, such "
                "as with `.to(torch.bfloat16)`"
            )
        halves = _NO_BYTES if target is META else self._cut(storage, places)
        pairs = halves.view(float16.numpy.newbyteorder(">" if self._big else "<")).astype(np.float32)
        array = array_on(target, complex64, places.sizes, pairs.view(np.uint8))
        return tensor_of(array, places.sizes, complex64, target)

    def _on_storage(self, storage: Storage, places: Layout, target: device) -> Tensor:
        """A tensor on a storage. It only has its own elements until a second one is built, with which it shares all."""
        key = storage.key
        if target is META:
            return self._on_meta(storage, places)
        if key not in self._first:
            tensor = self._new(storage, places, target)
            self._first[key] = tensor, places
            return tensor
        if key not in self._shared:
            self._shared[key] = self._common(storage, target, *self._first[key])
        self._left -= prod(places.sizes) * places.dtype.itemsize
        self._check_left()
        return view_of_storage(self._shared[key], places)

    def _on_meta(self, storage: Storage, places: Layout) -> Tensor:
        """A tensor on a storage without elements, which is always a whole one: it costs nothing."""
        if storage.key not in self._shared:
            count = storage.nbytes // places.dtype.itemsize
            whole = self._shared[storage.key] = without_data((count,), places.dtype)
            if self._start is not None:
                note_origin(whole, self._start(storage), device(storage.location) if self._fake else META)
        return view_of_storage(self._shared[storage.key], places)

    def _common(self, storage: Storage, target: device, first: Tensor, places: Layout) -> Tensor:
        """The whole storage as a tensor: the first tensor on it, or, if that is only a part, a new one.

        The first tensor then becomes a view of the new one.
        """
        if places.is_contiguous and first.nbytes == storage.nbytes:
            return first
        dtype = places.dtype
        count = storage.nbytes // dtype.itemsize
        tensor = self._new(storage, Layout((count,), (1,), 0, dtype), target)
        owner_of(first).data = view_of_storage(tensor, places)
        return tensor

    def _device_of(self, storage: Storage) -> device:
        if self._fake:
            return META
        if storage.key not in self._places:
            self._places[storage.key] = self._locate(storage.location, storage.nbytes)
        return self._places[storage.key]

    def _cut(self, storage: Storage, places: Layout) -> Bytes:
        """The bytes of a tensor's elements, in row-major order; not a copy if they are all of the storage."""
        if storage.key not in self._contents:
            self._contents[storage.key] = self._fetch(storage)
        content = self._contents[storage.key]
        size, itemsize = places.sizes, places.dtype.itemsize
        nbytes = prod(size) * itemsize
        if nbytes == len(content) and places.is_contiguous:
            return content
        # Before the allocation, as too large a copy must be refused instead of made.
        self._left -= nbytes
        self._check_left()
        buffer = room(nbytes)
        if nbytes:
            word = np.dtype((np.void, itemsize))
            whole = content[: len(content) // itemsize * itemsize].view(word)
            steps = [step * itemsize for step in places.strides]
            seen = np.lib.stride_tricks.as_strided(whole[places.offset :], size, steps)
            buffer.view(word).reshape(size)[...] = seen
        return buffer

    def _check_left(self) -> None:
        if self._left < 0:
            raise PickleError(
                "its tensors are views that take far more memory than the file; save a clone() of what was expanded"
            )

    def _from_cpu(self, data: Unpickled, dtype: Unpickled, location: Unpickled, requires_grad: Unpickled) -> Tensor:
        if not isinstance(data, Tensor) or not isinstance(dtype, DType) or type(location) is not str:
            raise PickleError("its pickle moves something else than a tensor to a device")
        tensor = data.to(dtype=dtype, device=self._locate(location, data.nbytes))
        return tensor.detach().requires_grad_(requires_grad is True)

    def _wrapper(
        self,
        kind: Unpickled,
        dtype: Unpickled,
        size: Unpickled,
        stride: Unpickled,
        offset: Unpickled,
        target: Unpickled,
        home: Unpickled,
        requires_grad: Unpickled,
    ) -> Tensor:
        """A tensor of a class whose tensors have no elements; its attributes follow as a state."""
        if not isinstance(dtype, DType) or not isinstance(home, device) or type(offset) is not int:
            raise PickleError("its pickle makes a tensor of a subclass of something else than a type and a device")
        check_place(MOST_SIZE, 0, size, stride)
        place = home if self._fake else self._locate(str(home), 0)
        return make_wrapper_subclass(
            class_of(kind), size, stride, offset, None, dtype, target, place, requires_grad=requires_grad is True
        )

    def of_state(self, state: Unpickled) -> Tensor:
        """The tensor that PyTorch's oldest pickles make of `torch.Tensor()` by a state: a storage, and places in it."""
        if not is_plain_tuple(state) or len(state) != 4:
            raise PickleError("its pickle sets the state of a Tensor, which has none to set")
        return self._plain(*state)

    METHODS: ClassVar[dict[str, AnyCallable]] = {
        "torch._utils._rebuild_tensor": _plain,
        TYPED_TENSOR.full_name: _version_2,
        UNTYPED_TENSOR.full_name: _version_3,
        FROM_CPU.full_name: _from_cpu,
        QUANTIZED_TENSOR.full_name: _quantized,
        WRAPPER_TENSOR.full_name: _wrapper,
    }
    """What a builder does for PyTorch's functions."""


NAMES = (*TensorBuilder.METHODS, *FUNCTIONS)
"""Names of what PyTorch's pickles call to build tensors."""
