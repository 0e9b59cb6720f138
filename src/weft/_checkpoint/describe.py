"""Objects as JSON, and back. Tensors and NumPy arrays are listed beside the object and referred to by number.

None, booleans, strings, ints, finite floats and lists stand for themselves. All else is `{"is": kind, ...}`.
"""

from __future__ import annotations

import base64
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from weft._base.device import device
from weft._base.dtype import DTYPES, QUANTIZED, DType
from weft._base.layout import NamedConstant, named
from weft._base.size import Size
from weft._base.types import Json, PyTree
from weft._checkpoint.keys import KeyChecker
from weft._lazy.aval import AnyOwner
from weft._lazy.owner import Stored
from weft._tensor.copying import owner_that_saves, restored
from weft._tensor.kind_names import advice
from weft._tensor.tensor import Tensor
from weft.errors import CheckpointError
from weft.nn._state_dict import StateDict

T = TypeVar("T")

_DTYPES = {dtype.name: dtype for dtype in (*DTYPES, *QUANTIZED)}
_NUMPY = {dtype.numpy for dtype in DTYPES}

_SEQUENCES: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset, "size": Size}
_HASHED = ("set", "frozenset")
_MAPPINGS: dict[str, Any] = {"dict": dict, "ordered": OrderedDict, "state": StateDict}
_KIND = {kind: name for name, kind in (_SEQUENCES | _MAPPINGS).items()}


class Describer:
    """Describes one object; collects its tensors in `tensors` and its NumPy arrays in `arrays`, each once."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.arrays: list[np.ndarray[Any, Any]] = []
        self._numbers: dict[int, int] = {}
        self._open: set[int] = set()  # containers that are being described

    def describe(self, x: PyTree, path: str = "obj") -> Json:
        """The JSON form of `x`; `CheckpointError` names the path of a part that has none."""
        if x is None or type(x) in (bool, str, int):
            return x
        if type(x) is float:
            return x if math.isfinite(x) else {"is": "float", "value": str(x)}
        if isinstance(x, Tensor):
            owner = owner_that_saves(x)
            return {"is": "tensor", "at": self.number(x)} if owner is None else self._owned(x, owner, path)
        if type(x) is list or type(x) in _KIND:
            return self._container(x, path)
        return self._other(x, path)

    def number(self, x: Tensor | np.ndarray) -> int:
        """The place of a tensor or an array in its list, at whose end it is put if it is new."""
        items: list[Any] = self.tensors if isinstance(x, Tensor) else self.arrays
        at = self._numbers.setdefault(id(x), len(items))
        if at == len(items):
            items.append(x)
        return at

    def _owned(self, x: Tensor, owner: AnyOwner, path: str) -> Any:
        """A tensor of which files hold what its owner says: that it consists of others, as a sparse one does."""
        stored: Stored[Tensor] = owner.save(x._read())
        facts, parts = self.describe(stored.facts, path), self.describe(stored.parts, path)
        return {"is": "composed", "layout": stored.kind, "facts": facts, "parts": parts}

    def _container(self, x: PyTree, path: str) -> Json:
        if id(x) in self._open:
            raise CheckpointError(f"cannot save {path}: it contains itself")
        self._open.add(id(x))
        if isinstance(x, dict):
            pairs = [
                [self.describe(key, f"{path} key {key!r}"), self.describe(value, f"{path}[{key!r}]")]
                for key, value in x.items()
            ]
            metadata = getattr(x, "_metadata", None)  # state dicts from PyTorch's files are OrderedDicts with it
            description: Any = {"is": _KIND[type(x)] if metadata is None else "state", "items": pairs}
            if metadata is not None:
                description["metadata"] = self.describe(metadata, f"{path}._metadata")
        else:
            description = [self.describe(item, f"{path}[{at}]") for at, item in enumerate(x)]
            if type(x) is not list:
                description = {"is": _KIND[type(x)], "items": description}
        self._open.remove(id(x))
        return description

    def _other(self, x: object, path: str) -> Json:
        if isinstance(x, DType):
            return {"is": "dtype", "name": x.name}
        if isinstance(x, NamedConstant):
            return {"is": "constant", "name": str(x).removeprefix("torch.")}
        if isinstance(x, device):
            return {"is": "device", "name": str(x)}
        if type(x) is bytes:
            return {"is": "bytes", "base64": base64.b64encode(x).decode("ascii")}
        if type(x) is bytearray:
            return {"is": "bytearray", "base64": base64.b64encode(x).decode("ascii")}
        if type(x) is complex:
            return {"is": "complex", "parts": [self.describe(x.real, path), self.describe(x.imag, path)]}
        if isinstance(x, np.str_):
            return str(x)
        if isinstance(x, np.generic) and x.dtype in _NUMPY:
            return {"is": "scalar", "dtype": x.dtype.name, "base64": base64.b64encode(_little(x)).decode("ascii")}
        if type(x) is np.ndarray and is_numeric(x.dtype):
            return {"is": "array", "at": self.number(x)}
        if type(x).__reduce__ is not object.__reduce__:
            x.__reduce__()  # may raise an error that says why such objects cannot be saved
        raise CheckpointError(
            f"cannot save {path}, which is of type {type(x).__module__}.{type(x).__qualname__}: a checkpoint holds "
            "tensors, NumPy arrays of numbers, numbers, strings, bytes, dtypes, devices, None, and dicts, lists, "
            "tuples and sets of them; save a module's or an optimizer's state_dict()"
            f"{advice(x)}"
        )


def is_numeric(dtype: np.dtype) -> bool:
    """Whether arrays of this type are stored beside the object."""
    return dtype in _NUMPY


class Rebuilder:
    """Rebuilds an object from its JSON form. `tensor` and `array` take the number of a tensor or array, and return it.

    `ValueError` for an invalid form.
    """

    def __init__(self, tensor: Callable[[int], Tensor], array: Callable[[int], np.ndarray]) -> None:
        self._tensor = tensor
        self._array = array
        self._spread = KeyChecker().spread

    def rebuild(self, x: Json) -> PyTree:
        """The object for a JSON value."""
        if isinstance(x, list):
            return [self.rebuild(item) for item in x]
        if not isinstance(x, dict):
            return x
        kind = x.get("is")
        if kind in _MAPPINGS:
            return self._mapping(kind, x)
        if kind in _SEQUENCES:
            items = self.rebuild(_field(x, "items", list))
            return _SEQUENCES[kind](map(self._spread, items) if kind in _HASHED else items)
        match kind:
            case "tensor":
                return self._tensor(_field(x, "at", int))
            case "composed":
                return self._owned_from(x)
            case "array":
                return self._array(_field(x, "at", int))
            case "scalar":
                return _scalar(dtype_of(_field(x, "dtype", str)), _bytes(x))
            # NaN and infinities, which JSON lacks, are texts.
            case "float":
                return float(_field(x, "value", str))
            case "complex":
                return complex(*map(self.rebuild, _field(x, "parts", list)))
            case "bytes":
                return _bytes(x)
            case "bytearray":
                return bytearray(_bytes(x))
            case "dtype":
                return dtype_of(_field(x, "name", str))
            case "constant":
                return _constant(_field(x, "name", str))
            case "device":
                return device(_field(x, "name", str))
        raise ValueError(f"it holds an object of unknown kind {kind!r}")

    def _owned_from(self, x: dict[str, Any]) -> Any:
        facts, parts = (self.rebuild(_field(x, name, dict)) for name in ("facts", "parts"))
        return restored(Stored(_field(x, "layout", str), facts, parts))

    def _mapping(self, kind: str, x: dict[str, Json]) -> dict[PyTree, PyTree]:
        pairs = [(self._spread(self.rebuild(key)), self.rebuild(value)) for key, value in _field(x, "items", list)]
        mapping = _MAPPINGS[kind](pairs)
        if kind == "state":
            mapping._metadata = self.rebuild(_field(x, "metadata", dict))
        return mapping


def _little(x: np.generic) -> bytes:
    return np.asarray(x).astype(x.dtype.newbyteorder("<")).tobytes()


def _scalar(dtype: DType, content: bytes) -> np.generic:
    if len(content) != dtype.itemsize:
        raise ValueError(f"it has a {dtype.name} number of {len(content)} bytes")
    return np.frombuffer(content, dtype.numpy.newbyteorder("<")).astype(dtype.numpy)[0]


def _bytes(x: dict[str, Json]) -> bytes:
    return base64.b64decode(_field(x, "base64", str), validate=True)


def dtype_of(name: str) -> DType:
    """The element type with this name; `ValueError` if there is none."""
    if name not in _DTYPES:
        raise ValueError(f"it holds elements of unknown type {name!r}")
    return _DTYPES[name]


def _constant(name: str) -> NamedConstant:
    try:
        return named(name)
    except KeyError:
        raise ValueError(f"it names a layout or a scheme that there is not: {name!r}") from None


def _field(x: dict[str, Json], name: str, kind: type[T]) -> T:
    value = x.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"the description of a {x.get('is')} lacks a valid {name!r}")
    return value
