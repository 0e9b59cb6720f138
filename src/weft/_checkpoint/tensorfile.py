"""Safetensors files: a header in JSON, then the elements of named tensors. https://huggingface.co/docs/safetensors"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import IO

from weft._base.device import device
from weft._base.dtype import DTYPES, DType
from weft._base.guards import is_dict, is_list, is_mapping, is_plain_dict, is_plain_list, is_plain_tuple
from weft._base.types import Json
from weft._checkpoint.archive import filled
from weft._checkpoint.buffers import Bytes, array_on, bytes_of, computed, elements_of, tensor_of
from weft._checkpoint.storages import is_shape
from weft._lazy.aligned import ALIGNMENT
from weft._tensor.dim_names import checked_names, set_names
from weft._tensor.tensor import Tensor
from weft.errors import CheckpointError

_LENGTH = 8  # bytes of the header's length
_MOST_HEADER = 100_000_000  # bytes, which the format allows
_METADATA = "__metadata__"
_NAMES = "weft.names"  # an entry of the metadata: the names of dims, by tensor, as JSON
_WORDS = {
    "bool": "BOOL",
    "bfloat16": "BF16",
    "complex64": "C64",
    "complex128": "C128",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
}
_LETTERS = {"i": "I", "u": "U", "f": "F"}


def _word(dtype: DType) -> str:
    """How a header spells an element type, such as `F32`."""
    return _WORDS.get(dtype.name) or f"{_LETTERS[dtype.numpy.kind]}{8 * dtype.itemsize}"


_DTYPES = {_word(dtype): dtype for dtype in DTYPES}


# --- writing ----------------------------------------------------------------------------------------------------


def writer_of(tensors: object, metadata: Mapping[str, str] | None) -> Callable[[IO[bytes]], None]:
    """A function that writes named tensors to an open file, one at a time. `CheckpointError` if it cannot save them."""
    if not is_mapping(tensors):
        raise CheckpointError(
            f"cannot save a {type(tensors).__name__} as safetensors: the format holds a dict of tensors by name"
        )
    header: dict[str, Json] = {}
    checked = {name: _checked(name, tensor) for name, tensor in tensors.items()}
    names = {name: tensor.names for name, tensor in checked.items() if tensor.has_names()}
    if metadata is not None or names:
        header[_METADATA] = _checked_metadata(metadata or {})
    if names:
        header[_METADATA][_NAMES] = json.dumps(names)
    ordered = sorted(checked.items(), key=lambda item: (-item[1].itemsize, item[0]))  # keeps elements aligned
    end = 0
    for name, tensor in ordered:
        header[name] = {
            "dtype": _word(tensor.dtype),
            "shape": list(tensor.shape),
            "data_offsets": [end, end + tensor.nbytes],
        }
        end += tensor.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(_LENGTH + len(text)) % ALIGNMENT)
    computed()

    def put(file: IO[bytes]) -> None:
        file.write(len(text).to_bytes(_LENGTH, "little") + text)
        for _, tensor in ordered:
            file.write(bytes_of(elements_of(tensor)))

    return put


def _checked(name: object, tensor: object) -> Tensor:
    if not isinstance(name, str) or name == _METADATA:
        raise CheckpointError(f"cannot save the key {name!r} as safetensors: names of tensors are strings")
    if not isinstance(tensor, Tensor):
        raise CheckpointError(
            f"cannot save {name!r}, which is of type {type(tensor).__name__}, as safetensors: the format holds tensors "
            "by name; put strings into `metadata`, or save to another kind of file"
        )
    if tensor.dtype.name == "complex128":
        raise CheckpointError(f"cannot save {name!r} as safetensors: the format has no complex128; use complex64")
    return tensor


def _checked_metadata(metadata: object) -> dict[str, str]:
    if not is_mapping(metadata) or not all(
        isinstance(key, str) and isinstance(value, str) for key, value in metadata.items()
    ):
        raise CheckpointError("cannot save this metadata as safetensors: it must be a dict from strings to strings")
    return dict(metadata)


# --- reading ----------------------------------------------------------------------------------------------------


class TensorFile:
    """The named tensors of a safetensors file, each read when it is asked for. `ValueError` if the file is invalid.

    With `mapped`, the bytes of the whole file in memory, tensors are made from these.
    """

    def __init__(self, file: IO[bytes], mapped: Bytes | None = None) -> None:
        self._file = file
        self._mapped = mapped
        start = file.tell()
        size = file.seek(0, os.SEEK_END) - start
        file.seek(start)
        length = int.from_bytes(file.read(_LENGTH), "little")
        if size < _LENGTH or length > min(_MOST_HEADER, size - _LENGTH):
            raise ValueError("it is truncated: its header is not all there")
        self._begin = start + _LENGTH + length
        # A million tensors in a header kept the garbage collector busy for longer than reading them.
        with _without_collector():
            header: Json = json.loads(file.read(length).decode(), object_pairs_hook=_read_object)
            if not is_dict(header):
                raise ValueError("its header is no object")
            self.metadata = _read_metadata(header.pop(_METADATA, None))
            self._names = _read_names((self.metadata or {}).pop(_NAMES, "{}"))
            entries = {name: _read_entry(name, entry) for name, entry in header.items()}
            self._entries = dict(sorted(entries.items(), key=lambda item: item[1][2:]))
        self._check_places(size - _LENGTH - length)

    def _check_places(self, size: int) -> None:
        end = 0
        for name, (_, _, start, stop) in self._entries.items():
            if start != end:
                raise ValueError(f"its tensor {name!r} starts at {start}, and the one before ends at {end}")
            end = stop
        if end != size:
            raise ValueError(f"its tensors take {end} bytes, and it has {size}")

    def keys(self) -> list[str]:
        """The names of the tensors, in the order in which they are stored."""
        return list(self._entries)

    def type_of(self, name: str) -> tuple[tuple[int, ...], DType]:
        """Shape and element type of a tensor; `CheckpointError` if there is no tensor of this name."""
        if name not in self._entries:
            raise CheckpointError(f"File does not contain tensor {name}; it has {len(self._entries)} others")
        return self._entries[name][:2]

    def place_of(self, name: str) -> tuple[int, int]:
        """Where the elements of a tensor begin in the file, and how many bytes they take."""
        self.type_of(name)
        _, _, start, stop = self._entries[name]
        return self._begin + start, stop - start

    def tensor(self, name: str, target: device) -> Tensor:
        """A tensor, on a device."""
        shape, dtype = self.type_of(name)
        tensor = tensor_of(array_on(target, dtype, shape, self._content(name)), shape, dtype, target)
        names = self._names.get(name)
        return tensor if names is None else set_names(tensor, checked_names(names, tensor.ndim))

    def _content(self, name: str) -> Bytes:
        _, _, start, stop = self._entries[name]
        if self._mapped is not None:
            return self._mapped[self._begin + start : self._begin + stop]
        return filled(self._file, self._begin + start, stop - start, name)


@contextmanager
def _without_collector() -> Generator[None]:
    """Pause the garbage collector: with a million objects it would take twice as long as reading them.

    Several threads may use it at once: at worst, the collector runs again before the last of them is done.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _read_object(pairs: list[tuple[str, Json]]) -> Json:
    """An object of the header: the description of a tensor as a tuple, which takes less memory; all others as dicts."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("its header names something twice")
    if not is_plain_list(fields.get("shape")):
        return fields
    return fields["dtype"], tuple(fields["shape"]), tuple(fields["data_offsets"])


def _read_names(text: str) -> dict[str, list[Json]]:
    """The names of dims, by tensor, from JSON; `ValueError` if the text is invalid."""
    names: Json = json.loads(text)
    if not is_dict(names) or not all(is_list(entry) for entry in names.values()):
        raise ValueError("its names of dims are no lists by tensor")
    return names


def _read_metadata(metadata: Json) -> dict[str, str] | None:
    if metadata is not None and (
        not is_plain_dict(metadata) or not all(type(value) is str for value in metadata.values())
    ):
        raise ValueError("its metadata is no dict of strings")
    return metadata


def _read_entry(name: str, entry: Json) -> tuple[tuple[int, ...], DType, int, int]:
    if not is_plain_tuple(entry):
        raise ValueError(f"its tensor {name!r} is described without 'dtype', 'shape' and 'data_offsets'")
    word, shape, places = entry
    if word not in _DTYPES:
        raise ValueError(f"its tensor {name!r} has elements of type {word!r}, which there is not here")
    if not is_shape(shape) or len(places) != 2 or not type(places[0]) is type(places[1]) is int or places[0] < 0:
        raise ValueError(f"its tensor {name!r} has an impossible shape or place")
    dtype = _DTYPES[word]
    count, (start, stop) = prod(shape), places
    if stop - start != count * dtype.itemsize:
        raise ValueError(
            f"its tensor {name!r} of shape {list(shape)} takes {count * dtype.itemsize} bytes, and has {stop - start}"
        )
    return shape, dtype, start, stop


def named_tensors(file: TensorFile, locate: Callable[[str, int], device]) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) for all tensors of a file, on the devices that `locate` gives for the saved location "cpu"."""
    for name in file.keys():  # noqa: SIM118  no dict
        shape, dtype = file.type_of(name)
        yield name, file.tensor(name, locate("cpu", prod(shape) * dtype.itemsize))
