"""The package's own files: a zip archive of stored members.

`weft.json` describes the object and its tensors; `data/0` and so on are the elements of tensors and NumPy arrays in
row-major order, little-endian, on multiples of 64 bytes; `extra/…` are files that the writer has added. Tensors that
share elements name one member, with strides and an offset in it (since version 2). Those on the meta device name none,
and an object that has no form in JSON is the pickle `object.pkl`, which refers to tensors and arrays by number (both
since version 3). Of a distributed tensor, the file has the part of the process that has written it, and its `sharding`
(since version 4).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from weft._base.device import CPU
from weft._base.dtype import DType
from weft._base.guards import is_dict
from weft._base.types import Json, PyTree
from weft._checkpoint.archive import Reader
from weft._checkpoint.buffers import array_on, tensor_of, without_data
from weft._checkpoint.describe import Rebuilder, dtype_of
from weft._checkpoint.extra_files import is_extra
from weft._checkpoint.map_location import Locate
from weft._checkpoint.storages import is_shape, placed, view_of_storage
from weft._lazy.owner import Stored
from weft._tensor.copying import restored
from weft._tensor.dim_names import checked_names, set_names
from weft._tensor.tensor import Tensor
from weft.nn._lazy_parameter import UninitializedBuffer, UninitializedParameter, UninitializedTensorMixin
from weft.nn._parameter import Buffer, Parameter
from weft.ops._strides import row_major

if TYPE_CHECKING:
    from weft._checkpoint.pickled import Fetch

T = TypeVar("T")

DESCRIPTION = "weft.json"
FORMAT = "weft"
VERSION = 4
PICKLE = "object.pkl"

Entry: TypeAlias = dict[str, Json]
"""The description of a tensor or an array in the file."""

_KINDS = {kind.__name__: kind for kind in (Tensor, Parameter, Buffer, UninitializedParameter, UninitializedBuffer)}
_DATA = re.compile(r"data/(0|[1-9][0-9]{0,9})")


def load(reader: Reader, locate: Locate, unpickled: Callable[[bytes, Fetch], PyTree]) -> PyTree:
    """The object in a file. If the file is invalid, `ValueError`, `KeyError`, `TypeError` or others say why.

    `unpickled` reads the pickle of a file that has one, with a function that gives the tensors and arrays to which it
    refers.
    """
    for name in reader.names:
        if name not in (DESCRIPTION, PICKLE) and not _DATA.fullmatch(name) and not is_extra(name):
            raise ValueError(f"it has a member of unexpected name {name!r}")
    described = _description(reader)
    entries = _Entries(reader, described, locate)
    if PICKLE in reader:
        return unpickled(reader.read(PICKLE), entries.referred)
    return Rebuilder(entries.tensor, entries.array).rebuild(described["object"])


def _description(reader: Reader) -> dict[str, Json]:
    described: Json = json.loads(reader.read(DESCRIPTION).decode())
    if not is_dict(described) or described.get("format") != FORMAT:
        raise ValueError("it is no checkpoint of this package")
    version = described.get("version")
    if not isinstance(version, int) or version < 1:
        raise ValueError(f"its version is {version!r}, which is none")
    if version > VERSION:
        raise ValueError(f"its format is version {version}, and this package reads up to {VERSION}; update the package")
    if not isinstance(described.get("tensors"), list) or "object" not in described:
        raise ValueError("its description is incomplete")
    return described


class _Entries:
    """The tensors and NumPy arrays of a file, each made when it is first asked for."""

    def __init__(self, reader: Reader, described: dict[str, Json], locate: Locate) -> None:
        self._reader = reader
        self._tensors = described["tensors"]
        self._arrays = described.get("arrays", [])
        self._locate = locate
        self._cache: dict[tuple[str, int], Any] = {}
        self._types: dict[str, Any] = {}  # by member: with several types for one, a file could fill the memory
        self._shared: dict[Any, Any] = {}
        self._storages: dict[Any, Tensor] = {}  # of members that several tensors share

    def tensor(self, number: int) -> Tensor:
        """A tensor by number."""
        return self._at("tensor", self._tensors, number, self._make_tensor)

    def array(self, number: int) -> np.ndarray:
        """A NumPy array by number."""
        return self._at("array", self._arrays, number, self._make_array)

    def referred(self, pid: object) -> Tensor | np.ndarray:
        """What a pickle refers to: a tensor or an array, by number."""
        match pid:
            case ("tensor", int(number)):
                return self.tensor(number)
            case ("array", int(number)):
                return self.array(number)
            case _:
                raise ValueError("its pickle refers to something that is neither a tensor nor an array")

    def _at(self, what: str, table: list[Entry], number: int, make: Callable[[Entry], T]) -> T:
        if not 0 <= number < len(table):
            raise ValueError(f"it refers to {what} {number}, and has {len(table)}")
        if (what, number) not in self._cache:
            self._cache[what, number] = make(table[number])
        return self._cache[what, number]

    def _type_of(self, entry: Entry) -> tuple[str, tuple[int, ...], DType]:
        name, shape, dtype = _fields(entry)
        if self._reader.size(name) != prod(shape) * dtype.itemsize:
            raise ValueError(
                f"the member {name!r} has {self._reader.size(name)} bytes, and a {dtype.name} tensor of shape "
                f"{list(shape)} takes {prod(shape) * dtype.itemsize}"
            )
        if self._types.setdefault(name, (shape, dtype)) != (shape, dtype):
            raise ValueError(f"it describes the member {name!r} in two ways")
        return name, shape, dtype

    def _make_tensor(self, entry: Entry) -> Tensor:
        if "data" not in entry:
            shape, dtype = _type_of(entry)
            return _of_kind(without_data(shape, dtype), entry)
        return _of_kind(self._aliased(entry) if "stride" in entry else self._alone(entry), entry)

    def _alone(self, entry: Entry) -> Tensor:
        name, shape, dtype = self._type_of(entry)
        target = self._locate(str(entry["device"]), self._reader.size(name))
        if (name, target) not in self._shared:
            self._shared[name, target] = array_on(target, dtype, shape, self._reader.array(name))
        return tensor_of(self._shared[name, target], shape, dtype, target)

    def _aliased(self, entry: Entry) -> Tensor:
        """A tensor that shares its elements with others."""
        name, shape, dtype = _fields(entry)
        target = self._locate(str(entry["device"]), self._reader.size(name))
        places = placed(shape, entry["stride"], entry["offset"], dtype, self._reader.size(name))
        if (name, target) not in self._storages:
            _, sizes, kind = _fields(self._wholes.get(name, entry))
            sizes = sizes if name in self._wholes else (self._reader.size(name) // kind.itemsize,)
            self._storages[name, target] = tensor_of(
                array_on(target, kind, sizes, self._reader.array(name)), sizes, kind, target
            )
        return view_of_storage(self._storages[name, target], places)

    @cached_property
    def _wholes(self) -> dict[str, Entry]:
        """The description of the first tensor that covers all of a member, by the member's name."""
        wholes: dict[str, dict[str, Json]] = {}
        for entry in self._tensors:
            if "data" not in entry:
                continue
            name, shape, dtype = _fields(entry)
            if (
                not entry.get("offset")
                and entry.get("stride") == list(row_major(shape))
                and (prod(shape) * dtype.itemsize == self._reader.size(name))
            ):
                wholes.setdefault(name, entry)
        return wholes

    def _make_array(self, entry: Entry) -> np.ndarray:
        name, shape, dtype = self._type_of(entry)
        if name not in self._shared:
            self._shared[name] = np.array(array_on(CPU, dtype, shape, self._reader.array(name)))
        return self._shared[name]


def _fields(entry: Entry) -> tuple[str, tuple[int, ...], DType]:
    """The member, shape and type of a tensor."""
    return f"data/{entry['data']}", *_type_of(entry)


def _type_of(entry: Entry) -> tuple[tuple[int, ...], DType]:
    """The shape and type of a tensor."""
    shape, dtype = tuple(entry["shape"]), dtype_of(entry["dtype"])
    if not is_shape(shape):
        raise ValueError(f"it has a tensor of impossible shape {list(shape[:8])}")
    return shape, dtype


def _of_kind(plain: Tensor, entry: Entry) -> Tensor:
    if "sharding" in entry:
        plain = restored(Stored("sharding", entry["sharding"], {"part": plain}))
    names = entry.get("names")
    if names is not None:
        set_names(plain, checked_names(names, plain.ndim))
    kind = _KINDS.get(entry["kind"])
    if kind is None:
        raise ValueError(f"it has a tensor of unknown kind {entry['kind']!r}")
    if issubclass(kind, UninitializedTensorMixin):
        return kind(entry["requires_grad"] is True, plain.device, plain.dtype)
    if kind is Parameter:
        return Parameter(plain, requires_grad=entry["requires_grad"] is True)
    if kind is Buffer:
        return Buffer(plain, persistent=entry.get("persistent") is not False)
    return plain.requires_grad_(entry["requires_grad"] is True)
