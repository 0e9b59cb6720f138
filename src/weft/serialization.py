"""Saving and loading tensors and Python objects. Loading executes no code of a file unless the caller trusts it.

It writes PyTorch's format and safetensors, and reads these and the format that earlier versions of the package wrote.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from mmap import MAP_SHARED
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from weft import _weights_only_unpickler as _weights_only_unpickler
from weft._base.device import DeviceLike
from weft._base.device import device as device_class
from weft._base.exports import on_first_use
from weft._base.site import warn_user
from weft._base.state import ambient
from weft._base.types import Arg, FileLike, PathLike, PyTree
from weft._base.usage import log_api_usage_once
from weft._checkpoint import native, torch_files, whole
from weft._checkpoint.archive import MemoryFile, mapped_file, opened, write_to_path
from weft._checkpoint.buffers import Bytes
from weft._checkpoint.extra_files import all_extra_files, members_of_extra
from weft._checkpoint.extra_files import set_extra_files_hook as set_extra_files_hook
from weft._checkpoint.former_names import _check_dill_version, _check_save_filelike
from weft._checkpoint.map_location import Locate, MapLocation, Raised, locator
from weft._checkpoint.options import SETTINGS, skipping
from weft._checkpoint.options import LoadEndianness as LoadEndianness
from weft._checkpoint.options import get_crc32_options as get_crc32_options
from weft._checkpoint.options import get_default_load_endianness as get_default_load_endianness
from weft._checkpoint.options import get_default_mmap_options as get_default_mmap_options
from weft._checkpoint.options import set_crc32_options as set_crc32_options
from weft._checkpoint.options import set_default_load_endianness as set_default_load_endianness
from weft._checkpoint.options import set_default_mmap_options as set_default_mmap_options
from weft._checkpoint.options import skip_data as skip_data
from weft._checkpoint.packages import default_restore_location as default_restore_location
from weft._checkpoint.packages import location_tag as location_tag
from weft._checkpoint.packages import register_package as register_package
from weft._checkpoint.packages import validate_cuda_device as validate_cuda_device
from weft._checkpoint.pickled import globals_named
from weft._checkpoint.records import _check_seekable, _is_zipfile
from weft._checkpoint.safe import add_safe_globals as add_safe_globals
from weft._checkpoint.safe import clear_safe_globals as clear_safe_globals
from weft._checkpoint.safe import get_safe_globals as get_safe_globals
from weft._checkpoint.safe import is_trusted
from weft._checkpoint.safe import safe_globals as safe_globals
from weft._checkpoint.sources import SourceChangeWarning as SourceChangeWarning
from weft._checkpoint.tar_files import is_tar, load_tar
from weft._checkpoint.tensorfile import TensorFile, named_tensors, writer_of
from weft._checkpoint.torch_pickle import pickled
from weft._checkpoint.torch_writer import write_archive, write_stream
from weft._tensor.convert import existing
from weft._tensor.overriding import setting
from weft._tensor.tensor import Tensor
from weft.errors import (
    ArgumentError,
    CheckpointError,
    EmptyFileError,
    PickleError,
    UnreadableError,
    ValueRangeError,
    WeftError,
)
from weft.ops._aten import aten
from weft.utils._pytree import tree_map

if TYPE_CHECKING:
    from types import ModuleType

    from weft._checkpoint.pickled import Fetch

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "weft._checkpoint.former_names": (
            *("INT_SIZE", "IS_WINDOWS", "LONG_SIZE", "MAGIC_NUMBER", "MAP_PRIVATE", "PROTOCOL_VERSION", "SHORT_SIZE"),
            *("STORAGE", "STORAGE_KEY_SEPARATOR", "StorageType", "UNSAFE_MESSAGE", "_get_layout"),
            *("_get_restore_location", "_maybe_decode_ascii", "_should_read_directly", "mkdtemp"),
            *("check_module_version_greater_or_equal", "normalize_storage_type"),
        ),
        "weft._checkpoint.options": ("_serialization_tls", "_get_storage_alignment"),
        "weft._checkpoint.packages": ("_package_registry",),
        "weft._checkpoint.records": (
            *("_is_compressed_file", "_is_path", "_is_torchscript_zip", "_open_buffer_reader", "_open_buffer_writer"),
            *("_open_file", "_open_file_like", "_open_zipfile_reader", "_open_zipfile_writer", "_opener"),
            *("_open_zipfile_writer_buffer", "_open_zipfile_writer_file"),
        ),
    },
)
"""What libraries call of PyTorch's module."""

MAP_LOCATION = MapLocation
"""Where `load` puts tensors: a device, a mapping from devices to others, or a function; None leaves them."""
DEFAULT_PROTOCOL = 2
"""The version of `pickle`'s format in which `save` writes."""

_PATHS = (str, os.PathLike)
_SUFFIX = ".safetensors"
_MAGIC = len(torch_files.LEGACY_START)


# --- saving -----------------------------------------------------------------------------------------------------


def save(
    obj: PyTree,
    f: FileLike,
    pickle_module: ModuleType | None = None,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
    *,
    _extra_files: Mapping[str, str | bytes] | None = None,
) -> None:
    """Write an object to a path, or to a file open for binary writing.

    The format is PyTorch's, which PyTorch reads. The pickle in it is made by `pickle_module` (by default Python's
    `pickle`) with `pickle_protocol`, at most 3. Loading tensors, numbers, strings and containers of these runs no code;
    see `load` for files with other objects, such as a whole module. `PicklingError` gives the place of what cannot be
    pickled; then nothing is written. A tensor that occurs twice, and tensors that share elements, are written once. A
    path is written completely or not at all. If it ends in `.safetensors`, that format is written, which contains a
    dict of tensors and is widely supported (`save_file`). Without `_use_new_zipfile_serialization`, the format is that
    from before PyTorch 1.6. `_disable_byteorder_record` has no effect, as in PyTorch: files say that they are
    little-endian.

    `_extra_files` are strings or bytes by name, which are put under `extra/` in the archive, after those of
    `set_extra_files_hook`.
    """
    del _disable_byteorder_record
    log_api_usage_once("torch.save")
    _save(obj, f, pickle_module, pickle_protocol, _use_new_zipfile_serialization, _extra_files)


def save_plain(obj: PyTree, f: FileLike) -> None:
    """As `save`, for objects that can be loaded without running code; `PicklingError` gives the place of others."""
    _save(obj, f, check=torch_files.require_plain)


def _save(
    obj: PyTree,
    f: FileLike,
    pickle_module: ModuleType | None = None,
    protocol: int = 2,
    in_archive: bool = True,
    extra_files: Mapping[str, str | bytes] | None = None,
    check: Callable[[bytes], None] | None = None,
) -> None:
    if isinstance(f, _PATHS) and os.fspath(f).endswith(_SUFFIX):
        if extra_files:
            raise CheckpointError("cannot save extra files as safetensors: give save_file() their text as `metadata`")
        save_file(obj, f)
        return
    _check_save_filelike(f)
    _check_dill_version(pickle_module)
    _refuse_text(f, "save", "wb")
    if skipping.skip_data and not in_archive:
        raise CheckpointError("Cannot use skip_data=True with _use_new_zipfile_serialization=False")
    content, storages = pickled(obj, pickle_module, protocol, older=not in_archive, check=check)
    if extra_files and not in_archive:
        raise CheckpointError("cannot save extra files in the older format, which is no archive")
    # Before a file is opened: a hook or a name that is refused leaves nothing behind.
    extra = members_of_extra(all_extra_files(extra_files)) if in_archive else {}
    folder = (Path(f).stem if isinstance(f, _PATHS) else "") or "archive"

    def put(file: IO[bytes]) -> None:
        if in_archive:
            write_archive(file, content, storages, folder, extra)
        else:
            write_stream(file, content, storages)

    if isinstance(f, _PATHS):
        write_to_path(Path(f), put)
    else:
        put(f)


def save_file(tensors: Mapping[str, Tensor], filename: PathLike, metadata: Mapping[str, str] | None = None) -> None:
    """Write a dict of tensors by name as a safetensors file, completely or not at all.

    `metadata` are strings by name for the header. `CheckpointError` gives the key of anything that is not a tensor.
    """
    write_to_path(Path(filename), writer_of(tensors, metadata))


# --- loading ----------------------------------------------------------------------------------------------------


def load(
    f: FileLike,
    map_location: MapLocation = None,
    pickle_module: ModuleType | None = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    encoding: str = "utf-8",
    _extra_files: MutableMapping[str, bytes] | None = None,
) -> PyTree:
    """Read a checkpoint from a path, or from a file open for binary reading.

    The content determines the format: PyTorch's, also that from before 1.6, safetensors, or that of earlier versions.

    No code from the file is executed, and classes and functions other than those of `add_safe_globals` are refused,
    unless `weights_only=False`. Then modules and other whole objects are unpickled by `pickle_module` (by default
    Python's `pickle`), which imports what the file names and may run any code: only for files that you trust.
    `weights_only` is True by default, unless there is a `pickle_module` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1`;
    `TORCH_FORCE_WEIGHTS_ONLY_LOAD=1` makes it True in all cases.

    `map_location` gives the devices of tensors, by default those from which they were saved. It is a device or its
    name, a dict from saved devices to new ones, or `f(storage, location)`, which returns the storage, moved by
    `storage.cuda(0)` or `storage.to(device)`, or None for the default. With `mmap`, elements stay in the file, which
    must be a path, until they are used; checksums are then not checked. `encoding` is for strings of Python 2 in
    PyTorch's files. The names in `_extra_files` get the bytes of the extra files with these names.

    `CheckpointError` gives the reason if a file is not a checkpoint or not complete. It is also a
    `pickle.UnpicklingError` if a file contains what `weights_only` refuses, or has no known format, and an `EOFError`
    if the file is empty. `AttributeError` if `f` is not a file.
    """
    log_api_usage_once("torch.load")
    _check_dill_version(pickle_module)
    mmap = SETTINGS["load.mmap"] if mmap is None else mmap
    trusts = _trusts(weights_only, pickle_module)
    if mmap and not isinstance(f, _PATHS):
        raise ValueRangeError("f must be a file path in order to use the mmap argument")
    locate = locator(map_location)
    # All that goes wrong in between is told with the file's name.
    try:
        with _opened(f) as (file, name), _refusals(name):
            modes = ambient().overrides.dispatchers
            reading = _Reading(trusts, pickle_module, encoding, any(mode.makes_fakes for mode in modes))
            mapped = None
            if mmap and isinstance(f, _PATHS):
                mapped = mapped_file(f, shared=get_default_mmap_options() == MAP_SHARED)
            with setting(dispatchers=()) if modes else nullcontext():
                loaded = _load(file, locate, mapped, reading, _extra_files)
            return tree_map(_lifted, loaded) if modes else loaded
    except Raised as carrier:
        raise carrier.error from None


def _lifted(x: Arg) -> Arg:
    """What modes make of a new tensor: a fake one, under `FakeTensorMode`."""
    return aten.lift_fresh(x) if isinstance(x, Tensor) else x


def load_bytes(content: Bytes, name: str, target: device_class, *, verified: bool) -> PyTree:
    """As `load`, to a device, from bytes in memory that errors call `name`.

    Unless `verified`, elements stay in that memory until they are used, and checksums are not checked.
    """
    with _refusals(name):
        reading = _Reading(False, None, "utf-8")
        return _load(
            cast("IO[bytes]", MemoryFile(content)), locator(target), None if verified else content, reading, None
        )


def _trusts(weights_only: bool | None, pickle_module: ModuleType | None) -> bool:
    """Whether `load` may run a file's code."""
    always, never = (
        os.environ.get(f"TORCH_FORCE_{name}_LOAD", "0").lower() in ("1", "y", "yes", "true")
        for name in ("WEIGHTS_ONLY", "NO_WEIGHTS_ONLY")
    )
    if always and never:
        raise CheckpointError(
            "Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` should be set, but both "
            "were set."
        )
    trusts = pickle_module is not None if weights_only is None else not weights_only
    if never and weights_only is None:
        warn_user(
            "Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the `weights_only` argument was not "
            "explicitly passed to `torch.load`, forcing weights_only=False."
        )
        trusts = True
    if (always or not trusts) and pickle_module is not None:
        raise CheckpointError("Can not safely load weights when explicit pickle_module is specified")
    return trusts and not always


@dataclass(frozen=True)
class _Reading:
    """How the pickles of a file are read; if `fake`, tensors get no elements."""

    trusts: bool
    pickle_module: Any
    encoding: str
    fake: bool = False

    def own(self, content: bytes, stored: Fetch) -> PyTree:
        """The object of a pickle in the package's own files."""
        file = io.BytesIO(content)
        if self.trusts:
            return whole.trusting(file, stored, self.pickle_module, self.encoding)
        return whole.restricted(file, len(content), stored, self.encoding)

    @property
    def torch(self) -> torch_files.Trusted | None:
        """The reader of the pickles in PyTorch's files whose code may be run."""
        if not self.trusts:
            return None
        return lambda file, stored, stand_in: whole.trusting(file, stored, self.pickle_module, self.encoding, stand_in)


def load_file(filename: PathLike, device: DeviceLike = "cpu") -> dict[str, Tensor]:
    """The tensors of a safetensors file by name, on a device."""
    with safe_open(filename, device=device) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  no dict


class safe_open:
    """A safetensors file whose tensors are read one by one: `with safe_open("x.safetensors") as f: f.get_tensor("w")`.

    `framework` is accepted for compatibility.
    """

    def __init__(self, filename: PathLike, framework: str = "pt", device: DeviceLike = "cpu") -> None:
        del framework
        self._device = existing(device_class(device))
        self._name = str(filename)
        self._file = open(filename, "rb")  # noqa: SIM115  closed on leaving
        try:
            with _refusals(self._name):
                self._content = TensorFile(self._file)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def keys(self) -> list[str]:
        """The names of the tensors."""
        return sorted(self._content.keys())

    def metadata(self) -> dict[str, str] | None:
        """The strings of the header."""
        return self._content.metadata

    def get_shape(self, name: str) -> list[int]:
        """The shape of a tensor, without reading the tensor."""
        return list(self._content.type_of(name)[0])

    def get_tensor(self, name: str) -> Tensor:
        """A tensor; `CheckpointError` if there is none with this name."""
        with _refusals(self._name):
            return self._content.tensor(name, self._device)


def get_unsafe_globals_in_checkpoint(f: FileLike) -> list[str]:
    """The classes and functions named in a file that `load` would refuse. Nothing is built."""
    with _opened(f) as (file, name):
        if not _is_zipfile(file) and (file.seek(0) or not _is_zipfile(file)):
            raise ValueRangeError(f"Expected input to be a checkpoint returned by torch.save: {name} is no archive")
        with _refusals(name), opened(file) as reader:
            if native.DESCRIPTION in reader:
                named = globals_named(io.BytesIO(reader.read(native.PICKLE))) if native.PICKLE in reader else ()
                return sorted(entry for entry in named if not whole.is_known(entry))
            allowed = _weights_only_unpickler._get_allowed_globals()
            return sorted(
                entry for entry in torch_files.globals_in(reader) if entry not in allowed and not is_trusted(entry)
            )


def _refuse_text(f: FileLike, function: str, mode: str) -> None:
    if isinstance(f, io.TextIOBase):
        raise ArgumentError(
            f"{function}() needs a file of bytes, and this one was opened as text: open it with {mode!r}"
        )


@contextmanager
def _opened(f: FileLike) -> Iterator[tuple[IO[bytes], str]]:
    if isinstance(f, _PATHS):
        with open(f, "rb") as file:
            yield file, str(f)
        return
    _check_seekable(f)
    _refuse_text(f, "load", "rb")
    yield f, str(getattr(f, "name", f"<{type(f).__name__}>"))


@contextmanager
def _refusals(name: str) -> Iterator[None]:
    """Name the file in errors about loading it."""
    try:
        yield
    except CheckpointError as error:
        raise type(error)(f"cannot load {name}: {error}") from error
    except io.UnsupportedOperation as error:
        raise UnreadableError(
            f"cannot load {name}: {error}. You can only torch.load from a file that is seekable and open for reading. "
            "Please pre-load the data into a buffer like io.BytesIO and try to load from it instead."
        ) from error
    except RecursionError as error:
        raise CheckpointError(f"cannot load {name}: its objects are nested too deeply") from error
    except (ValueError, KeyError, TypeError, OverflowError, IndexError, EOFError, WeftError) as error:
        raise CheckpointError(f"cannot load {name}: {error}") from error


def _load(
    file: IO[bytes], locate: Locate, mapped: Bytes | None, reading: _Reading, extra: MutableMapping[str, bytes] | None
) -> PyTree:
    start = file.tell()
    head = file.read(_MAGIC)
    size = file.seek(0, os.SEEK_END) - start
    file.seek(start)
    if not head:
        raise EmptyFileError("it is empty, or has been read to its end")
    if head[:4] == b"PK\x03\x04":
        with opened(file, mapped) as reader:
            is_own = native.DESCRIPTION in reader
            prefix = "" if is_own else torch_files.prefix_of(reader)
            for name in extra or ():
                extra[name] = reader.read(f"{prefix}extra/{name}")  # pyright: ignore[reportOptionalSubscript]  it has names
            if is_own:
                return native.load(reader, locate, reading.own)
            return torch_files.load_archive(reader, locate, reading.encoding, reading.torch, fake=reading.fake)
    if head[8:9] == b"{":
        return dict(named_tensors(TensorFile(file, mapped), locate))
    if head == torch_files.LEGACY_START and mapped is not None:
        raise CheckpointError(
            "mmap can only be used with files saved with `torch.save(_use_new_zipfile_serialization=True), please "
            "torch.save your checkpoint with this option in order to use mmap."
        )
    if head == torch_files.LEGACY_START:
        return torch_files.load_stream(file, size, locate, reading.encoding, reading.torch, fake=reading.fake)
    if is_tar(file):
        return load_tar(file, locate, reading.encoding, reading.torch)
    raise PickleError("it is no checkpoint: neither a zip archive, nor safetensors, nor an old file of PyTorch's")


def _load_from_bytes(b: bytes) -> PyTree:
    """What `save` has written to memory; pickles of storages call it."""
    return load(io.BytesIO(b), weights_only=False)
