"""Files of exported programs: zip archives with the program, its description, and its tensors.

`about.json`   the structure of inputs and outputs, the types and kinds of the state, and the SHA-256 of the program:
               jax finds damage only when it runs one, and names what it happens to meet
`program`      the bytes of `jax.export.Exported.serialize`
`state/*.npy`  the state; types that NumPy does not have, such as bfloat16, as unsigned integers of their size

NumPy and jax read them without this package: `numpy.load` opens such archives.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import sha256
from io import BytesIO
from math import prod
from pathlib import Path
from typing import IO

import jax
import jax.export
import numpy as np

from weft._base.device import DeviceLike
from weft._base.dtype import dtype_named
from weft._base.guards import is_a, is_dict
from weft._base.types import Arg, FileLike, Json
from weft._checkpoint.archive import Member, Reader, opened, write, write_to_path
from weft._checkpoint.extra_files import all_extra_files, members_of_extra
from weft._tensor.convert import from_host
from weft._tensor.generator import default_generator
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, CheckpointError, NoFileError, ProgramError
from weft.export._graph import ProgramGraph
from weft.export._program import About, ArrayType, ExportedProgram
from weft.export._record import GENERATOR
from weft.export._structure import check_structure
from weft.nn._parameter import Parameter

_FORMAT = "weft.export"
_VERSION = 1
_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError)  # of what fits nowhere
_NEEDS_FLATBUFFERS = "jax writes and reads programs with the package flatbuffers: pip install 'weft[export]'"


def save(
    ep: ExportedProgram, f: FileLike, *, extra_files: Mapping[str, str | bytes] | None = None, derivatives: int = 0
) -> None:
    """Write a program and its tensors to a path (completely or not at all), or to a file open for binary writing.

    `extra_files` are put under `extra/` in the archive, by name, after those of `serialization.set_extra_files_hook`.
    With `derivatives=1` the file also holds the program's derivative, so that gradients flow through it when it is
    loaded; with 2 that of the derivative, and so on.
    """
    if not is_a(ep, ExportedProgram):
        raise ArgumentError(f"The 'ep' parameter must be an instance of 'ExportedProgram', got '{type(ep).__name__}'")
    content, extra = _serialized(ep, derivatives), members_of_extra(all_extra_files(extra_files))
    if isinstance(f, (str, os.PathLike)):
        write_to_path(Path(f), lambda file: write(file, _members(ep, content, extra)))
    elif hasattr(f, "write"):
        write(f, _members(ep, content, extra))
    else:
        raise NoFileError(f"export.save: 'f' must be a path or a file open for writing, got {type(f).__name__}")


def _serialized(ep: ExportedProgram, derivatives: int) -> bytes:
    try:
        return bytes(ep.exported.serialize(vjp_order=derivatives))
    except ImportError as error:
        raise ProgramError(_NEEDS_FLATBUFFERS) from error
    except ValueError as error:  # a program that was loaded without its derivative
        raise ProgramError(f"export.save: derivatives={derivatives} is not possible ({error})") from error


def _members(ep: ExportedProgram, content: bytes, extra: Mapping[str, bytes]) -> Iterator[Member]:
    about = {"format": _FORMAT, "version": _VERSION, **asdict(ep.about)}
    about["sha256"] = sha256(content).hexdigest()
    about["requires_grad"] = [name for name, x in ep.tensors.items() if x.requires_grad]
    yield "about.json", json.dumps(about, indent=1).encode()
    yield "program", content
    for name, tensor in ep.tensors.items():
        yield f"state/{name}.npy", _npy(tensor._host())
    if ep.about.draws:
        yield f"state/{GENERATOR}.npy", _npy(np.array(default_generator.state()))
    yield from extra.items()


def _npy(array: np.ndarray) -> bytes:
    out = BytesIO()
    plain = array if array.dtype.kind in "biufc" else array.view(f"u{array.dtype.itemsize}")
    np.lib.format.write_array(out, np.ascontiguousarray(plain).reshape(array.shape), allow_pickle=False)
    return out.getvalue()


def _text(content: bytes) -> str | bytes:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def load(
    f: FileLike, *, extra_files: MutableMapping[str, Arg] | None = None, device: DeviceLike = "cpu"
) -> ExportedProgram:
    """Read a program that `save` wrote, with its tensors on a device. `CheckpointError` if it cannot be read.

    `extra_files` gets, for each of its names, the content of the extra file: text, or bytes that are no UTF-8. Nothing
    in the file is run as Python code.
    """
    with _opened(f) as (file, name), _refusals(name), opened(file) as reader:
        if "about.json" not in reader or "program" not in reader:
            raise CheckpointError("it is no exported program: it has no members 'about.json' and 'program'")
        table = json.loads(reader.read("about.json"))
        if not is_dict(table) or table.get("format") != _FORMAT:
            raise CheckpointError("it is no exported program of this package")
        if table.get("version") != _VERSION:
            raise CheckpointError(
                f"it has version {table.get('version')} of the format, and this package reads version {_VERSION}"
            )
        about = _about(table)
        content = reader.read("program")
        if table.get("sha256", digest := sha256(content).hexdigest()) != digest:  # files of older versions have none
            raise CheckpointError("its program is damaged: it is not the one that was saved")
        program = _deserialized(content)
        _check(about, len(program.out_avals))
        trained = set(table["requires_grad"])
        tensors = {n: _tensor(reader, n, about, n in trained, device) for n in about.state if n != GENERATOR}
        for extra in extra_files or {}:
            if f"extra/{extra}" in reader:
                extra_files[extra] = _text(reader.read(f"extra/{extra}"))  # pyright: ignore[reportOptionalSubscript]
    return ExportedProgram(program, about, tensors)


def _deserialized(content: bytes) -> jax.export.Exported:
    try:
        return jax.export.deserialize(bytearray(content))
    except ImportError as error:
        raise ProgramError(_NEEDS_FLATBUFFERS) from error
    except Exception as error:  # flatbuffers raises what it happens to meet
        raise CheckpointError(
            f"jax {jax.__version__} cannot read the program ({type(error).__name__}: {error})"
        ) from error


def _about(table: dict[str, Json]) -> About:
    return About(
        table["name"],
        table["args"],
        table["kwargs"],
        tuple(table["names"]),
        tuple([_type(entry) for entry in table["inputs"]]),
        table["outputs"],
        {name: _type(entry) for name, entry in table["state"].items()},
        dict(table["kinds"]),
        tuple(table["changes"]),
        int(table["draws"]),
        {name: (int(low), int(high)) for name, (low, high) in table["sizes"].items()},
        bool(table["of_module"]),
        table.get("graph", []),
    )


def _check(about: About, results: int) -> None:
    """Raise, as for all damage, unless the parts of a description fit together: else errors would come at its use."""
    words = (about.name, *about.names, *about.changes, *about.kinds, *about.kinds.values(), *about.sizes)
    if not all(is_a(word, str) for word in words):
        raise TypeError("a name is no text")
    if len(about.names) != len(about.inputs) or not about.state.keys() >= {*about.changes}:
        raise ValueError("names, inputs and state do not fit together")
    for structure in (about.args, about.kwargs):
        check_structure(structure, len(about.inputs))
    check_structure(about.outputs, results)
    ProgramGraph(about.name, about.graph)


def _type(entry: Json) -> ArrayType:
    return ArrayType(entry["dtype"], tuple([_size(size) for size in entry["shape"]]))


def _size(size: int | Sequence[Arg]) -> int | tuple[str, int, int]:
    return size if isinstance(size, int) else (str(size[0]), int(size[1]), int(size[2]))


def _tensor(reader: Reader, name: str, about: About, trained: bool, device: DeviceLike) -> Tensor:
    content = reader.read(f"state/{name}.npy")
    shape, dtype, start = _header(content)
    expected = about.state[name]
    own = np.dtype(dtype_named(expected.dtype).numpy)
    if shape != expected.shape or dtype.itemsize != own.itemsize:
        raise CheckpointError(f"the tensor {name!r} is {dtype}{list(shape)} instead of {expected}")
    if (length := len(content) - start) != (needed := prod(shape) * dtype.itemsize):  # before memory is asked for
        raise CheckpointError(f"the tensor {name!r} has {length} bytes instead of {needed}")
    array = np.lib.format.read_array(BytesIO(content), allow_pickle=False)
    tensor = from_host(array.view(own), device)
    return Parameter(tensor, requires_grad=trained) if about.kinds[name] == "parameter" else tensor


def _header(content: bytes) -> tuple[tuple[int, ...], np.dtype, int]:
    """Shape and type of an array in NumPy's format, and where its elements begin."""
    stream = BytesIO(content)
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):  # that of all arrays whose header is short
        raise CheckpointError(f"it has an array of version {version} of NumPy's format instead of (1, 0)")
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    return shape, dtype, stream.tell()


@contextmanager
def _opened(f: FileLike) -> Generator[tuple[IO[bytes], str]]:
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            yield file, os.fspath(f)
    elif hasattr(f, "read") and hasattr(f, "seek"):
        yield f, getattr(f, "name", "the file")
    else:
        raise NoFileError(f"export.load: 'f' must be a path or a file open for reading, got {type(f).__name__}")


@contextmanager
def _refusals(name: str) -> Generator[None]:
    """Add the name of the file to errors about its content."""
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"cannot load {name}: {error}; export and save the program again") from error
    except _DAMAGE as error:
        raise CheckpointError(f"cannot load {name}: it is damaged ({type(error).__name__}: {error})") from error
