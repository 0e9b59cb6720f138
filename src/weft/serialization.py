"""Saving and loading: tensors and plain Python objects in one file. Loading runs no code.

The file is a zip archive of stored members. `weft.json` describes the object and its tensors; `data/0` and so on are
the tensors' elements in row-major order, little-endian, on multiples of 64 bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import IO, Any

import jax
import numpy as np

from weft._base.device import device
from weft._base.state import ambient
from weft._checkpoint.archive import Member, Reader, any_bytes, opened, write, write_atomically
from weft._checkpoint.describe import Describer, Rebuilder, dtype_of
from weft._lazy.realize import array_of, check_flags, flush
from weft._lazy.runtime import jax_device
from weft._lazy.value import Value, aval_of
from weft._tensor.tensor import Tensor, wrap
from weft.errors import ArgumentError, CheckpointError, WeftError
from weft.nn._parameter import Buffer, Parameter

FORMAT = "weft"
VERSION = 1

_KINDS = {"Tensor": Tensor, "Parameter": Parameter, "Buffer": Buffer}


# --- saving -----------------------------------------------------------------------------------------------------


def save(obj: Any, f: Any) -> None:
    """Write an object to a path, or to a file open for binary writing.

    Objects are tensors, numbers, strings, bytes, dtypes, devices, None, and dicts, lists, tuples and sets of them.
    `CheckpointError` names the place of anything else; then nothing is written. A tensor that is met twice, and
    tensors that hold the same elements, are written once. A path is written atomically.
    """
    describer = Describer()
    described = describer.describe(obj)
    flush(ambient().pending)
    check_flags(ambient().pending.flags)
    storages: dict[int, tuple[int, Any]] = {}  # by identity of the array: number, array
    tensors = [_describe_tensor(tensor, storages) for tensor in describer.tensors]
    text = json.dumps(
        {"format": FORMAT, "version": VERSION, "tensors": tensors, "object": described}, allow_nan=False
    ).encode()

    def members() -> Iterator[Member]:
        yield "weft.json", text
        for number, array in storages.values():
            host = np.ascontiguousarray(np.asarray(array))
            yield f"data/{number}", any_bytes(host.astype(host.dtype.newbyteorder("<"), copy=False))

    if _is_path(f):
        write_atomically(Path(f), members)
    elif hasattr(f, "write"):
        write(f, members())
    else:
        raise ArgumentError(f"save(): expected a path or a file open for writing, got {type(f).__name__}")


def _describe_tensor(tensor: Tensor, storages: dict[int, tuple[int, Any]]) -> dict[str, Any]:
    array = array_of(_stored(tensor)._read())
    number, _ = storages.setdefault(id(array), (len(storages), array))
    kind = "Parameter" if isinstance(tensor, Parameter) else "Buffer" if isinstance(tensor, Buffer) else "Tensor"
    found = {
        "kind": kind, "dtype": tensor.dtype.name, "shape": list(tensor.shape), "device": str(tensor.device),
        "requires_grad": tensor.requires_grad, "data": number,
    }  # fmt: skip
    return found | ({"persistent": tensor.persistent} if isinstance(tensor, Buffer) else {})


def _stored(tensor: Tensor) -> Tensor:
    """The tensor whose elements these are, where it is seen through views that change nothing, as in state dicts."""
    alias = tensor._alias
    if alias is not None and all(call.op.name in ("detach", "alias") for call, _ in alias.steps):
        return alias.base
    return tensor


def _is_path(f: Any) -> bool:
    return isinstance(f, (str, os.PathLike))


# --- loading ----------------------------------------------------------------------------------------------------


def load(f: Any, map_location: Any = None, *, weights_only: bool = True, mmap: bool | None = None) -> Any:
    """Read what `save` wrote to a path, or from a file open for binary reading. No code of the file is run.

    `weights_only` and `mmap` are accepted for compatibility: there is nothing else that a file could hold.

    Tensors come to the device that they were saved from, or where `map_location` says: a device, or a dict from saved
    to new devices. `CheckpointError` says why a file is not a checkpoint, or not a whole one.
    """
    del weights_only, mmap
    if _is_path(f):
        with open(f, "rb") as file:
            return _load(file, map_location, str(f))
    if not hasattr(f, "read"):
        raise ArgumentError(f"load(): expected a path or a file open for reading, got {type(f).__name__}")
    return _load(f, map_location, str(getattr(f, "name", f"<{type(f).__name__}>")))


def _load(file: IO[bytes], map_location: Any, name: str) -> Any:
    try:
        with opened(file) as reader:
            described = _description(reader)
            tensors = _Tensors(reader, described["tensors"], map_location)
            return Rebuilder(tensors.at).rebuild(described["object"])
    except CheckpointError:
        raise
    except RecursionError as error:
        raise CheckpointError(f"cannot load {name}: its objects are nested too deeply") from error
    except (ValueError, KeyError, TypeError, OverflowError, WeftError) as error:
        raise CheckpointError(f"cannot load {name}: {error}") from error


def _description(reader: Reader) -> dict[str, Any]:
    described = json.loads(reader.read("weft.json").decode())
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        raise ValueError("it is no checkpoint of this package")
    version = described.get("version")
    if not isinstance(version, int) or version < 1:
        raise ValueError(f"its version is {version!r}, which is none")
    if version > VERSION:
        raise ValueError(f"its format is version {version}, and this package reads up to {VERSION}; update the package")
    if not isinstance(described.get("tensors"), list) or "object" not in described:
        raise ValueError("its description is incomplete")
    return described


class _Tensors:
    """The tensors of a file, each made when it is first asked for."""

    def __init__(self, reader: Reader, listed: list[Any], map_location: Any) -> None:
        self._reader = reader
        self._listed = listed
        self._map_location = map_location
        self._made: dict[int, Tensor] = {}
        self._arrays: dict[Any, Any] = {}

    def at(self, number: int) -> Tensor:
        """A tensor by number."""
        if not 0 <= number < len(self._listed):
            raise ValueError(f"it refers to tensor {number}, and has {len(self._listed)}")
        if number not in self._made:
            self._made[number] = self._make(self._listed[number])
        return self._made[number]

    def _make(self, entry: dict[str, Any]) -> Tensor:
        shape, dtype = tuple(entry["shape"]), dtype_of(entry["dtype"])
        if not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(f"it has a tensor of impossible shape {list(shape)}")
        where = self._place(device(entry["device"]))
        name = f"data/{entry['data']}"
        if self._reader.size(name) != prod(shape) * dtype.itemsize:
            raise ValueError(
                f"the member {name!r} has {self._reader.size(name)} bytes, and a {dtype.name} tensor of shape "
                f"{list(shape)} takes {prod(shape) * dtype.itemsize}"
            )
        key = (name, shape, dtype, where)
        if key not in self._arrays:
            host = np.frombuffer(self._reader.read(name), dtype.numpy.newbyteorder("<")).reshape(shape)
            self._arrays[key] = jax.device_put(host.astype(dtype.numpy), jax_device(where))
        plain = wrap(Value(aval_of(shape, dtype, device=where), self._arrays[key]))
        return _of_kind(plain, entry)

    def _place(self, saved: device) -> device:
        wanted = self._map_location
        if isinstance(wanted, dict):
            named = {str(old): new for old, new in wanted.items()}
            wanted = named.get(str(saved))
        return saved if wanted is None else device(wanted)


def _of_kind(plain: Tensor, entry: dict[str, Any]) -> Tensor:
    kind = _KINDS.get(entry["kind"])
    if kind is None:
        raise ValueError(f"it has a tensor of unknown kind {entry['kind']!r}")
    if kind is Parameter:
        return Parameter(plain, requires_grad=entry["requires_grad"] is True)
    if kind is Buffer:
        return Buffer(plain, persistent=entry.get("persistent") is not False)
    return plain.requires_grad_(entry["requires_grad"] is True)
