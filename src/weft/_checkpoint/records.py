"""The members of PyTorch's archives one by one, by its names for what reads and writes them."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Generic, TypeVar
from weakref import finalize

from weft._base.dtype import DType, uint8
from weft._base.types import Arg, FileLike
from weft._checkpoint.archive import Reader, Writer, opened
from weft._checkpoint.buffers import Bytes
from weft._checkpoint.options import get_crc32_options, get_storage_alignment
from weft._checkpoint.torch_files import folder_of
from weft._checkpoint.torch_writer import identity_of
from weft._lazy.aligned import ALIGNMENT
from weft._tensor.convert import from_host
from weft._tensor.storage import UntypedStorage
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, CheckpointError, NoFileError, UnreadableError

__all__ = [
    "PyTorchFileReader",
    "PyTorchFileWriter",
    "_check_seekable",
    "_is_compressed_file",
    "_is_path",
    "_is_torchscript_zip",
    "_is_zipfile",
    "_open_file_like",
    "_open_zipfile_reader",
    "_open_zipfile_writer",
    "_open_zipfile_writer_buffer",
    "_open_zipfile_writer_file",
]

F = TypeVar("F")

_PATHS = (str, os.PathLike)
_IDENTITY = ".data/serialization_id"


class PyTorchFileReader:
    """Reads the members of an archive by their names without its folder: `reader.get_record("data.pkl")`.

    `RuntimeError` if the path or the open file is no archive, and for a member that is missing or damaged.
    """

    def __init__(self, file: FileLike) -> None:
        self._closing = ExitStack()
        finalize(self, self._closing.close)  # PyTorch's is not closed by programs
        try:
            stream: Any = file
            if isinstance(file, _PATHS):
                stream = self._closing.enter_context(open(file, "rb"))  # noqa: SIM115  closed by close()
            self._reader: Reader = self._closing.enter_context(opened(stream))
        except BaseException:
            self._closing.close()
            raise
        self._folder = folder_of(self._reader)

    def _name(self, name: str) -> str:
        full = f"{self._folder}{name}"
        if full not in self._reader:
            raise CheckpointError(f"PytorchStreamReader failed locating file {name}: file not found")
        return full

    def get_record(self, name: str) -> bytes:
        """The content of a member."""
        return self._reader.read(self._name(name))

    def get_record_size(self, name: str) -> int:
        """The size of a member in bytes."""
        return self._reader.size(self._name(name))

    def get_record_offset(self, name: str) -> int:
        """Where the content of a member begins in the file."""
        return self._reader.start(self._name(name))

    def get_record_header_offset(self, name: str) -> int:
        """Where the header of a member begins in the file."""
        return self._reader.header_start(self._name(name))

    def get_storage_from_record(self, name: str, numel: int, dtype: DType | type[UntypedStorage]) -> Tensor:
        """The elements of a member, of a type (or bytes, for `UntypedStorage`), as a tensor with one dim."""
        elements = dtype if isinstance(dtype, DType) else uint8
        itemsize = elements.itemsize
        content: Bytes = self._reader.array(self._name(name))
        if len(content) != numel * itemsize:
            raise CheckpointError(
                f"record size ({len(content)} bytes) does not match expected size ({numel * itemsize} bytes = {numel} "
                f"elements * {itemsize} bytes/element)"
            )
        return from_host(content.view(elements.numpy))

    def has_record(self, name: str) -> bool:
        """Whether there is a member."""
        return f"{self._folder}{name}" in self._reader

    def get_all_records(self) -> list[str]:
        """The names of all members."""
        return [name.removeprefix(self._folder) for name in self._reader.names]

    def serialization_id(self) -> str:
        """The digits by which PyTorch counts how often a file is loaded; empty if it has none."""
        return self.get_record(_IDENTITY).decode() if self.has_record(_IDENTITY) else ""

    def close(self) -> None:
        """Close the file, if it was opened by its path."""
        self._closing.close()


class PyTorchFileWriter:
    """Writes the members of an archive, to a path or an open file; `write_end_of_file` has to be called at the end."""

    def __init__(self, file: FileLike, compute_crc32: bool = True, storage_alignment: int = ALIGNMENT) -> None:
        self._closing = ExitStack()
        finalize(self, self._closing.close)
        self._folder = "archive"
        self._file: Any = file
        if isinstance(file, _PATHS):
            self._folder = Path(file).stem or "archive"
            self._file = self._closing.enter_context(open(file, "wb"))  # noqa: SIM115  closed at the end
        self._writer: Writer | None = Writer(self._file, storage_alignment, checked=compute_crc32)
        self._written: dict[str, None] = {}

    def _open(self, name: str) -> Writer:
        if self._writer is None:
            raise CheckpointError("the archive is complete: write_end_of_file() has been called")
        if name in self._written:
            raise CheckpointError(f"Tried to serialize file twice: {name}")
        self._written[name] = None
        return self._writer

    def write_record(self, name: str, data: str | bytes | UntypedStorage, size: int) -> None:
        """Write the first `size` bytes of a string, bytes or a storage as a member."""
        if isinstance(data, UntypedStorage):
            content: bytes = data.elements().cpu().numpy().tobytes()
        else:
            content = data.encode() if isinstance(data, str) else bytes(data)
        self._open(name).add(f"{self._folder}/{name}", content[:size])

    def write_record_metadata(self, name: str, size: int) -> None:
        """Write a member of `size` zeros, whose content can be written later: it has no checksum."""
        self._open(name).add_room(f"{self._folder}/{name}", size)

    def write_end_of_file(self) -> None:
        """Write the members that are in each archive, and the directory."""
        own = {"version": "3\n", "byteorder": "little", _IDENTITY: identity_of(repr(list(self._written)).encode())}
        for name, content in own.items():
            if name not in self._written:
                self.write_record(name, content, len(content))
        if self._writer is not None:
            self._writer.close()
        self._writer = None
        self._closing.close()

    def get_all_written_records(self) -> set[str]:
        """The names of the members that have been written."""
        return set(self._written)

    def archive_name(self) -> str:
        """The folder in which the members are."""
        return self._folder


# --- in blocks ----------------------------------------------------------------------------------------------------


class _opener(Generic[F]):
    """A block that gives `file_like`."""

    def __init__(self, file_like: F) -> None:
        self.file_like = file_like

    def __enter__(self) -> F:
        return self.file_like

    def __exit__(self, *_: object) -> None:
        pass


class _open_file(_opener[IO[bytes]]):
    """A block with a file opened by its path."""

    def __init__(self, name: Arg, mode: str) -> None:
        super().__init__(open(name, mode))  # noqa: SIM115  closed on leaving

    def __exit__(self, *_: object) -> None:
        self.file_like.close()


class _open_buffer_reader(_opener[IO[bytes]]):
    """A block with an open file, which must be seekable."""

    def __init__(self, buffer: IO[bytes]) -> None:
        super().__init__(buffer)
        _check_seekable(buffer)


class _open_buffer_writer(_opener[IO[bytes]]):
    """A block with an open file that is flushed at its end."""

    def __exit__(self, *_: object) -> None:
        self.file_like.flush()


def _open_file_like(name_or_buffer: FileLike, mode: str) -> _opener[IO[bytes]]:
    """A block with a file by its path, or an open one, for reading ("r…") or writing ("w…")."""
    if isinstance(name_or_buffer, _PATHS):
        return _open_file(name_or_buffer, mode)
    if "w" in mode:
        return _open_buffer_writer(name_or_buffer)
    if "r" in mode:
        return _open_buffer_reader(name_or_buffer)
    raise CheckpointError(f"Expected 'r' or 'w' in mode but got {mode}")


class _open_zipfile_reader(_opener[PyTorchFileReader]):
    """A block with the reader of an archive."""

    def __init__(self, name_or_buffer: FileLike) -> None:
        super().__init__(PyTorchFileReader(name_or_buffer))

    def __exit__(self, *_: object) -> None:
        self.file_like.close()


class _open_zipfile_writer_file(_opener[PyTorchFileWriter]):
    """A block with the writer of an archive at a path."""

    def __init__(self, name: Arg) -> None:
        super().__init__(PyTorchFileWriter(name, get_crc32_options(), get_storage_alignment()))

    def __exit__(self, *_: object) -> None:
        self.file_like.write_end_of_file()


class _open_zipfile_writer_buffer(_opener[PyTorchFileWriter]):
    """A block with the writer of an archive in an open file."""

    def __init__(self, buffer: IO[bytes]) -> None:
        if not callable(getattr(buffer, "write", None)):
            message = f"Buffer of {str(type(buffer)).strip('<>')} has no callable attribute 'write'"
            raise ArgumentError(message) if hasattr(buffer, "write") else NoFileError(message)
        self.buffer = buffer
        super().__init__(PyTorchFileWriter(buffer, get_crc32_options(), get_storage_alignment()))

    def __exit__(self, *_: object) -> None:
        self.file_like.write_end_of_file()
        self.buffer.flush()


def _open_zipfile_writer(name_or_buffer: FileLike) -> _opener[PyTorchFileWriter]:
    """A block with the writer of an archive, at a path or in an open file."""
    if isinstance(name_or_buffer, _PATHS):
        return _open_zipfile_writer_file(name_or_buffer)
    return _open_zipfile_writer_buffer(name_or_buffer)


# --- what kind of file it is ------------------------------------------------------------------------------------------


def _is_path(x: object) -> bool:
    """Whether this is a path, rather than an open file."""
    return isinstance(x, _PATHS)


def _is_zipfile(file: IO[bytes]) -> bool:
    """Whether an archive begins at the position of an open file."""
    start = file.tell()
    head = file.read(4)
    file.seek(start)
    return head == b"PK\x03\x04"


def _is_torchscript_zip(reader: PyTorchFileReader) -> bool:
    """Whether an archive holds a TorchScript program."""
    return "constants.pkl" in reader.get_all_records()


_ADVICE = (
    "You can only torch.load from a file that is seekable. Please pre-load the data into a buffer like io.BytesIO and "
    "try to load from it instead."
)


def _check_seekable(file: Arg) -> bool:
    """True; `AttributeError` or `io.UnsupportedOperation` for an open file that cannot be read at any place."""
    for attribute in ("seek", "tell", "read"):
        if not hasattr(file, attribute):
            raise NoFileError(f"'{type(file).__name__}' object has no attribute '{attribute}'. {_ADVICE}")
    try:
        file.seek(file.tell())
    except OSError as error:
        raise UnreadableError(f"{error}. {_ADVICE}") from error
    return True


def _is_compressed_file(file: object) -> bool:
    """Whether an open file decompresses what is read from it."""
    return type(file).__module__ == "gzip"
