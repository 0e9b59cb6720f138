"""PyTorch's files: zip archives of a pickle and storages, and the stream format that was written before 1.6."""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import IO, Self, TypeGuard

import numpy as np

from weft._base.dtype import DTYPES, NAMED, QUANTIZED, from_numpy
from weft._base.guards import is_dict, is_list, is_plain_dict, is_plain_list, is_plain_tuple
from weft._base.layout import FORMATS, SCHEMES
from weft._base.types import PyTree
from weft._checkpoint.archive import Reader, filled
from weft._checkpoint.buffers import Bytes
from weft._checkpoint.keys import Unpickled
from weft._checkpoint.map_location import Locate
from weft._checkpoint.options import LoadEndianness, get_default_load_endianness, skipping
from weft._checkpoint.pickled import Fetch, Global, Unpickler, globals_named, short_repr
from weft._checkpoint.safe import Plain, global_of, trusted_global
from weft._checkpoint.sources import check_source
from weft._checkpoint.torch_functions import FORMER_CLASSES
from weft._checkpoint.torch_layouts import rebuilt_sparse
from weft._checkpoint.torch_names import SPARSE_TENSOR
from weft._checkpoint.torch_tensors import CLASSES, NAMES, Storage, TensorBuilder, Unset
from weft._tensor.storage import TypedStorage, UntypedStorage
from weft.errors import CheckpointError, PickleError
from weft.ops._type_names import scalar_name

LEGACY_START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The first pickle of a file before 1.6: a magic number."""

LEGACY_PROTOCOL = 1001
storage_types = {f"{scalar_name(dtype)}Storage": dtype for dtype in DTYPES} | {
    f"{scalar_name(dtype)}Storage": from_numpy(dtype.numpy) for dtype in QUANTIZED
}
"""Types of elements by the names of classes of storages."""

_MOST_COPIED = 1 << 28  # bytes that views of storages may take, besides 16 times the size of the file


Trusted = Callable[[io.BytesIO, Fetch, Callable[[str], Unpickled]], PyTree]
"""(a pickle, what a persistent id refers to, what stands for a global of tensors or None) -> the object."""


class _NameResolver:
    """Resolves the global names and persistent ids of a pickle. Without `tensors`, every tensor is None."""

    def __init__(self, pickle_size: int, tensors: TensorBuilder | None = None) -> None:
        self._plain = Plain(pickle_size)
        self._surveys = tensors is None
        self._tensor_of = _nothing if tensors is None else tensors.of_state
        self.storages: dict[str, Storage] = {}
        rebuild = tensors.table() if tensors is not None else {name: Global(name, _nothing) for name in NAMES}
        self._tensors = rebuild | {f"torch.{dtype.name}": dtype for dtype in (*DTYPES, *QUANTIZED, *NAMED)}
        self._tensors |= {repr(constant): constant for constant in (*SCHEMES, *FORMATS)}
        self._table = self._plain.table() | self._tensors

    @property
    def table(self) -> dict[str, Unpickled]:
        """What stands for the globals of plain objects, tensors and types, by name."""
        return dict(self._table)

    def tensors_and_types(self, name: str) -> Unpickled:
        """What stands for a global that builds tensors, a type of elements or a class of storages; else None."""
        module, _, kind = name.rpartition(".")
        if module in ("torch", "torch.cuda", "torch.storage") and kind.endswith("Storage"):
            return Global(name, None)
        return self._tensors.get(name)

    def trusted(self, name: str) -> Unpickled:
        """The same for Python's own reader of pickles, which needs the classes themselves."""
        if name == SPARSE_TENSOR.full_name:
            return Global(name, partial(rebuilt_sparse, check=None))
        if name in FORMER_CLASSES:
            return None
        return CLASSES.get(name) or self.tensors_and_types(name)

    def find(self, name: str) -> Unpickled:
        """The object of a global name."""
        entry = self._table.get(name) or self.tensors_and_types(name)
        if entry is not None:
            return entry
        trusted = trusted_global(name)
        return Global(name, _Blank) if self._surveys else trusted

    def stored(self, pid: Unpickled) -> Storage:
        """The storage that a persistent id names."""
        pid = _as_text(pid)
        if not is_plain_tuple(pid) or len(pid) not in (5, 6) or pid[0] != "storage":
            kind = f"{type(pid[0])}" if is_plain_tuple(pid) and pid else f"{type(pid)}"
            raise PickleError(
                f"its pickle refers to something outside of it that is no storage: {short_repr(pid)}. Only "
                f"persistent_load of storage is allowed, but got {kind}"
            )
        _, kind, key, location, count, *view = pid
        if type(kind) is not Global or type(key) is not str or type(location) is not str or type(count) is not int:
            raise PickleError(f"its pickle refers to a storage in a way that makes no sense: {short_repr(key)}")
        if count < 0:
            raise PickleError(f"its pickle refers to a part of a storage, or to {count} elements")
        word = kind.name.rpartition(".")[2]
        dtype = storage_types.get(word)
        if dtype is None and word != "UntypedStorage":
            raise PickleError(
                f"it holds elements in a torch.{word}, which there is not here; convert the tensors there"
            )
        storage = Storage(key, dtype, location, count * (dtype.itemsize if dtype else 1))
        if self.storages.setdefault(key, storage) != storage:
            raise PickleError(f"its pickle describes the storage {key!r} in two ways")
        return storage if view in ([], [None]) else _part(storage, count, view[0])

    def stored_or_class(self, pid: Unpickled) -> Unpickled:
        """The storage, or the class of modules, that a persistent id names; old files have classes so."""
        pid = _as_text(pid)
        if not (is_plain_tuple(pid) and pid[:1] == ("module",) and len(pid) == 4):
            return self.stored(pid)
        _, kind, path, source = pid
        if isinstance(kind, type):
            check_source(kind, path, source)
        return kind

    def set_state(self, x: Unpickled, state: Unpickled) -> Unpickled:
        """Set the state of an object, and return the object; `PickleError` if it must not have one."""
        if x is None or isinstance(x, _Blank):
            return x
        return self._tensor_of(state) if isinstance(x, Unset) else self._plain.set_state(x, state)

    def load(self, file: IO[bytes], encoding: str) -> Unpickled:
        """The object of the pickle in a file."""
        return Unpickler(self.find, self.stored, self.set_state, self._plain.keys, encoding, global_of).load(file)


def _part(storage: Storage, count: int, view: Unpickled) -> Storage:
    """A part of a storage, as PyTorch 0.3 has written it: its own key, and where it lies, in elements."""
    if not is_plain_tuple(view) or len(view) != 3 or not all(type(n) is int for n in view[1:]):
        raise PickleError("its pickle refers to a part of a storage in a way that makes no sense")
    _, start, length = view
    if start < 0 or length < 0 or start + length > count:
        raise PickleError(f"its pickle refers to {length} elements from {start} of a storage of {count}")
    return replace(storage, part=(start, length))


def _as_text(entries: Unpickled) -> Unpickled:
    """A tuple or list whose bytes are strings: so are those of Python 2, if `encoding` is "bytes"."""
    if is_plain_tuple(entries):
        return tuple(map(_decoded, entries))
    return list(map(_decoded, entries)) if is_plain_list(entries) else entries


def _decoded(entry: Unpickled) -> Unpickled:
    return entry.decode("ascii") if type(entry) is bytes else entry


def _nothing(*_: object) -> None:
    """Stands for the functions that build tensors, while only the storages are looked for."""


def _is_container(x: Unpickled) -> TypeGuard[Collection[Unpickled]]:
    return isinstance(x, (dict, list, tuple, set, frozenset))


class _StorageSearch:
    """Looks for storages in containers. (A function that calls itself would be a cycle, and keep the file's content.)

    waiting  containers whose items have not been looked at
    """

    def __init__(self, build: Callable[[Storage], TypedStorage | UntypedStorage]) -> None:
        self.waiting: list[Unpickled] = []
        self._build = build
        self._seen: dict[int, tuple[Unpickled, PyTree]] = {}  # by identity: a container, and what stands in its place

    def resolved(self, x: Unpickled) -> PyTree:
        """What stands in the place of `x`, which is put among those that wait if it is a container."""
        if isinstance(x, Storage):
            return self._build(x)
        if isinstance(x, Unset):
            raise PickleError("its pickle calls torch.Tensor, which is nothing to call")
        if isinstance(x, Global) and x.trusted is not None:
            return x.trusted
        if isinstance(x, Global):
            raise PickleError(f"it holds {x.name} by itself; classes and functions are not loaded")
        if not _is_container(x):
            return x
        if id(x) not in self._seen:  # a tuple of one tuple twice, and so on, would else take for ever
            result: PyTree = x
            if is_plain_tuple(x):  # seldom deep, so it may recurse
                parts = [self.resolved(part) for part in x]
                result = x if all(a is b for a, b in zip(x, parts, strict=True)) else tuple(parts)
            else:
                self.waiting.append(x)
            self._seen[id(x)] = x, result
        return self._seen[id(x)][1]


def _with_storages(obj: Unpickled, build: Callable[[Storage], TypedStorage | UntypedStorage]) -> PyTree:
    """`obj` with a storage, as `build` makes it, in place of each that the pickle refers to by itself.

    `PickleError` if it holds functions or classes.
    """
    search = _StorageSearch(build)
    obj = search.resolved(obj)
    while search.waiting:
        x = search.waiting.pop()
        if is_dict(x):
            for key, value in x.items():
                search.resolved(key)
                x[key] = search.resolved(value)
            search.resolved(getattr(x, "__dict__", None))  # an OrderedDict's `_metadata`
        elif is_list(x):
            x[:] = map(search.resolved, x)
        else:
            for part in x:
                search.resolved(part)
    return obj


# --- zip archives -----------------------------------------------------------------------------------------------


def load_archive(
    reader: Reader, locate: Locate, encoding: str, trusted: Trusted | None = None, *, fake: bool = False
) -> PyTree:
    """The object in a zip archive.

    `trusted` reads a pickle whose code may be run. If `fake`, tensors have no elements, which are not read.
    """
    prefix = prefix_of(reader)
    is_big = get_default_load_endianness() is LoadEndianness.BIG
    order = reader.read(f"{prefix}byteorder") if f"{prefix}byteorder" in reader else b"big" if is_big else b"little"
    if order not in (b"little", b"big"):
        raise CheckpointError(f"its byte order is {order!r}, which is none")

    def start(storage: Storage) -> int:
        return reader.start(f"{prefix}data/{storage.key}")

    def fetch(storage: Storage) -> Bytes:
        if skipping.skip_data:
            return np.zeros(storage.nbytes, np.uint8)
        name = f"{prefix}data/{storage.key}"
        if reader.size(name) != storage.nbytes:
            raise CheckpointError(
                f"the member {name!r} has {reader.size(name)} bytes instead of {storage.nbytes}: record size "
                f"({reader.size(name)} bytes) does not match expected size ({storage.nbytes} bytes)"
            )
        return reader.array(name)

    content = reader.read(f"{prefix}data.pkl")
    # A small file may describe many tensors over one storage with strides that copy it again and again; what they may
    # cost is bounded by the file's own size.
    limit = 16 * reader.length + _MOST_COPIED
    tensors = TensorBuilder(fetch, locate, limit, big=order == b"big", start=start, fake=fake)
    return _object(io.BytesIO(content), tensors, encoding, trusted)


def _object(content: io.BytesIO, tensors: TensorBuilder, encoding: str, trusted: Trusted | None) -> PyTree:
    names = _NameResolver(len(content.getbuffer()), tensors)
    if trusted is None:
        return _with_storages(names.load(content, encoding), tensors.storage)

    def stored(pid: Unpickled) -> Unpickled:
        entry = names.stored_or_class(pid)
        return tensors.standing_for(entry) if isinstance(entry, Storage) else entry

    obj = trusted(content, stored, names.trusted)
    tensors.fill()
    return obj


def folder_of(reader: Reader) -> str:
    """The folder in which the members of an archive are, with a slash; empty if they are in none."""
    return f"{reader.names[0].partition('/')[0]}/" if reader.names and "/" in reader.names[0] else ""


def prefix_of(reader: Reader) -> str:
    """The folder of a checkpoint's members, with a slash; `CheckpointError` if there is no checkpoint."""
    members = [name for name in reader.names if name == "data.pkl" or name.endswith("/data.pkl")]
    if len(members) != 1:
        raise CheckpointError(f"it has {len(members)} members data.pkl" if members else "it is no checkpoint")
    prefix = members[0].removesuffix("data.pkl")
    if f"{prefix}constants.pkl" in reader:
        raise CheckpointError(
            "it is a TorchScript archive, which holds code; load it there with torch.jit.load, and save its "
            "state_dict()"
        )
    return prefix


def globals_in(reader: Reader) -> set[str]:
    """The globals that a zip archive names."""
    return globals_named(io.BytesIO(reader.read(f"{prefix_of(reader)}data.pkl")))


def allowed_globals() -> dict[str, Unpickled]:
    """What stands for the globals that loading takes without being told to trust them, by name."""
    storages = {f"{module}.{kind}": Global(kind, None) for module in ("torch", "torch.cuda") for kind in storage_types}
    untyped = {f"torch.storage.{kind}": Global(kind, None) for kind in ("UntypedStorage", "TypedStorage")}
    return _NameResolver(0).table | storages | untyped


def plain_object(file: IO[bytes], encoding: str) -> PyTree:
    """The object of a pickle by itself, without tensors: no code is run but that which the program trusts."""
    return _NameResolver(1 << 20).load(file, encoding)


def require_plain(content: bytes) -> None:
    """`PickleError` for a pickle that names a class or function which loading refuses unless it is trusted."""
    if refused := _refused(content):
        raise PickleError(
            f"it needs {refused[0]}, whose code would be run when it is loaded. Tensors, NumPy arrays of numbers, "
            "numbers, strings, bytes, dtypes, devices, None, and dicts, lists, tuples and sets of them can be "
            "saved here; save a module's or an optimizer's state_dict()"
        )


def _refused(content: bytes) -> list[str]:
    """The globals of a pickle that loading refuses, sorted."""
    contents = _NameResolver(0)
    return sorted(name for name in globals_named(io.BytesIO(content)) if not _is_known(contents, name))


def _is_known(contents: _NameResolver, name: str) -> bool:
    try:
        contents.find(name)
    except PickleError:
        return False
    return True


# --- the stream before PyTorch 1.6 ------------------------------------------------------------------------------


class _Blank:
    """Stands for an object of any class while only storages are looked for: it takes all that a pickle does to one."""

    def __new__(cls, *_: object, **__: object) -> Self:
        return super().__new__(cls)

    def _ignore(self, *_: object, **__: object) -> None:
        pass

    __init__ = __setstate__ = __setitem__ = append = extend = add = _ignore


class _Survey(pickle.Unpickler):
    """Finds the storages of a pickle whose code may be run, and runs none: their elements are not there yet."""

    def __init__(self, file: IO[bytes], names: _NameResolver, encoding: str) -> None:
        super().__init__(file, encoding=encoding)
        self._names = names

    def find_class(self, module: str, name: str) -> Unpickled:
        entry = self._names.tensors_and_types(f"{module}.{name}")
        return entry if isinstance(entry, Global) and entry.name.endswith("Storage") else _Blank

    def persistent_load(self, pid: Unpickled) -> Unpickled:
        return self._names.stored_or_class(pid)


def load_stream(
    file: IO[bytes],
    size: int,
    locate: Locate,
    encoding: str,
    trusted: Trusted | None = None,
    *,
    fake: bool = False,
) -> PyTree:
    """The object in a file of the older format: pickles, then the storages one after another.

    The pickle is read twice: first to find the storages behind it, then to build the tensors, which need them.
    Afterwards the file is at the end of the object, where another one may follow.
    """
    last = file.tell() + size
    _, protocol, system = [_NameResolver(size).load(file, encoding) for _ in range(3)]
    if protocol != LEGACY_PROTOCOL or not is_plain_dict(system):
        raise CheckpointError(f"its protocol is {short_repr(protocol)} instead of {LEGACY_PROTOCOL}")
    begin = file.tell()
    survey = _NameResolver(size)
    if trusted is None:
        # The storages stand behind the pickle that names them, so their places are only known after it has been read.
        survey.load(file, encoding)
    else:
        rest = io.BytesIO(file.read())
        _Survey(rest, survey, encoding).load()
        file.seek(begin + rest.tell())
    end = file.tell()
    big = False in (system.get("little_endian"), system.get(b"little_endian"))
    places = _places(file, _NameResolver(size).load(file, encoding), survey.storages, last, ">q" if big else "<q")

    def fetch(storage: Storage) -> Bytes:
        if skipping.skip_data:
            return np.zeros(storage.nbytes, np.uint8)
        return filled(file, places[storage.key], storage.nbytes, f"storage {storage.key}")

    behind = file.tell()
    file.seek(begin)
    content = io.BytesIO(file.read(end - begin))

    def start(storage: Storage) -> int:
        return places[storage.key]

    limit = 16 * size + _MOST_COPIED
    tensors = TensorBuilder(fetch, locate, limit, big=big, start=start, fake=fake)
    obj = _object(content, tensors, encoding, trusted)
    file.seek(behind)
    return obj


def _places(file: IO[bytes], keys: Unpickled, storages: dict[str, Storage], last: int, count: str) -> dict[str, int]:
    """Where the elements of each storage start, in a file that ends at `last`."""
    keys = _as_text(keys)
    if not is_plain_list(keys) or any(type(key) is not str for key in keys) or set(keys) != set(storages):
        raise CheckpointError("its list of storages does not fit its pickle")
    places: dict[str, int] = {}
    for key in keys:
        storage = storages[key]
        head = file.read(8)
        if len(head) < 8 or file.tell() + storage.nbytes > last:
            raise CheckpointError(f"it is truncated: the storage {key} is not all there")
        if struct.unpack(count, head)[0] * (storage.dtype.itemsize if storage.dtype else 1) != storage.nbytes:
            raise CheckpointError(f"the storage {key} has another size than its pickle says")
        places[key] = file.tell()
        file.seek(storage.nbytes, io.SEEK_CUR)
    return places
