"""What libraries call of PyTorch's module of saving and loading, besides that which programs call."""

from __future__ import annotations

import io
import mmap
import shutil
import struct
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from weft._base.dtype import DType
from weft._base.layout import NamedConstant
from weft._base.site import warn_user
from weft._base.types import Arg
from weft._checkpoint.map_location import MapLocation, locator
from weft._checkpoint.records import _is_compressed_file, _is_path
from weft._checkpoint.torch_files import storage_types
from weft._checkpoint.torch_layouts import layout_named
from weft._tensor.storage import TypedStorage, UntypedStorage
from weft.errors import CheckpointError, NoFileError, ValueRangeError

__all__ = [
    "StorageType",
    "_check_dill_version",
    "_check_save_filelike",
    "_get_layout",
    "_get_restore_location",
    "_maybe_decode_ascii",
    "_should_read_directly",
    "check_module_version_greater_or_equal",
    "mkdtemp",
    "normalize_storage_type",
]

LONG_SIZE, INT_SIZE, SHORT_SIZE = (struct.Struct(f"={code}").size for code in "lih")
MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
PROTOCOL_VERSION = 1001
STORAGE_KEY_SEPARATOR = ","
MAP_PRIVATE, MAP_SHARED = mmap.MAP_PRIVATE, mmap.MAP_SHARED
STORAGE = TypedStorage | UntypedStorage
IS_WINDOWS = sys.platform == "win32"
UNSAFE_MESSAGE = (
    "Loading with `weights_only=False` will likely succeed, and it runs the code of the file: do it only if you trust "
    "its source."
)


@contextmanager
def mkdtemp() -> Generator[str]:
    """A block with a new folder, which is removed at its end."""
    path = tempfile.mkdtemp()
    try:
        yield path
    finally:
        shutil.rmtree(path)


def check_module_version_greater_or_equal(
    module: ModuleType, req_version_tuple: tuple[Any, ...], error_if_malformed: bool = True
) -> bool:
    """Whether a module's version, as `1.2.3`, is at least a tuple such as `(1, 2)`.

    `RuntimeError` for a version of another form, or, without `error_if_malformed`, a warning and True.
    """
    try:
        parts = module.__version__.split(".")
        version = tuple([type(wanted)(parts[at]) for at, wanted in enumerate(req_version_tuple)])
        return version >= req_version_tuple
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        message = (
            f"'{module.__name__}' module version string is malformed '{getattr(module, '__version__', None)}' and "
            f"cannot be compared with tuple {req_version_tuple}"
        )
        if error_if_malformed:
            raise CheckpointError(message) from error
        warn_user(f"{message}, but continuing assuming that requirement is met")
        return True


def _check_dill_version(pickle_module: Arg) -> None:
    """`ValueError` for a `dill` that is too old to pickle tensors."""
    if getattr(pickle_module, "__name__", None) == "dill" and not check_module_version_greater_or_equal(
        pickle_module, (0, 3, 1), False
    ):
        raise ValueRangeError(
            f"'torch' supports dill >= 0.3.1, but you have dill {pickle_module.__version__}. Please upgrade dill or "
            "switch to 'pickle'"
        )


def _check_save_filelike(f: object) -> None:
    """`AttributeError` for what is neither a path nor a file open for writing."""
    if not _is_path(f) and not hasattr(f, "write"):
        raise NoFileError(
            "expected 'f' to be string, path, or a file-like object with a 'write' attribute: save() got "
            f"{type(f).__name__}"
        )


def _should_read_directly(f: Arg) -> bool:
    """Whether an open file is one of the system's, whose bytes are not compressed."""
    if _is_compressed_file(f):
        return False
    try:
        return f.fileno() >= 0
    except (io.UnsupportedOperation, AttributeError):
        return False


def _maybe_decode_ascii(text: bytes | str) -> str:
    """A string, also one that Python 2 has written as bytes."""
    return text.decode("ascii") if isinstance(text, bytes) else text


def _get_restore_location(map_location: MapLocation) -> Any:
    """What `map_location` stands for: `f(storage, location)` gives the storage on its new device."""
    locate = locator(map_location)

    def restore(storage: Any, location: str) -> Any:
        return storage.to(device=locate(location, storage.nbytes()))

    return restore


def normalize_storage_type(storage_type: type) -> Any:
    """The public class with the name of a class of storages."""
    return getattr(import_module("weft"), storage_type.__name__)


def _get_layout(name: str) -> NamedConstant:
    """The layout with a name such as `torch.sparse_coo`."""
    return layout_named(name)


class StorageType:
    """Stands for a class of storages that a file names, such as `FloatStorage`. `KeyError` if there is none."""

    def __init__(self, name: str) -> None:
        if name not in storage_types:
            raise KeyError(f'pickle storage type "{name}" is not recognized')
        self._dtype = storage_types[name]

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self._dtype

    def __str__(self) -> str:
        return f"StorageType(dtype={self.dtype})"
