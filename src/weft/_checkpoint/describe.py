"""Objects as JSON, and back. Tensors and NumPy arrays are listed beside the object and referred to by number.

None, booleans, strings, ints, finite floats and lists stand for themselves. All else is `{"is": kind, ...}`.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from weft._base.device import device
from weft._base.dtype import DTYPES, QUANTIZED, DType
from weft._base.guards import is_dict, is_list
from weft._base.layout import NamedConstant, named
from weft._base.size import Size
from weft._base.types import AnyCallable, Json, PyTree
from weft._checkpoint.keys import KeyChecker
from weft._lazy.owner import Stored
from weft._tensor.copying import restored
from weft._tensor.tensor import Tensor
from weft.nn._state_dict import StateDict

T = TypeVar("T")

_DTYPES = {dtype.name: dtype for dtype in (*DTYPES, *QUANTIZED)}
_NUMPY = {dtype.numpy for dtype in DTYPES}

_SEQUENCES: dict[str, AnyCallable] = {"tuple": tuple, "set": set, "frozenset": frozenset, "size": Size}
_LIST: type[list[Json]] = list  # a class that type checkers know the elements of
_HASHED = ("set", "frozenset")
_MAPPINGS: dict[str, AnyCallable] = {"dict": dict, "ordered": OrderedDict, "state": StateDict}
_KIND = {kind: name for name, kind in (_SEQUENCES | _MAPPINGS).items()}


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
        if is_list(x):
            return [self.rebuild(item) for item in x]
        if not is_dict(x):
            return x
        kind: Json = x.get("is")
        if kind in _MAPPINGS:
            return self._mapping(kind, x)
        if kind in _SEQUENCES:
            items = self.rebuild(_field(x, "items", _LIST))
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
                return complex(*map(self.rebuild, _field(x, "parts", _LIST)))
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
            case _:
                raise ValueError(f"it holds an object of unknown kind {kind!r}")

    def _owned_from(self, x: dict[str, Json]) -> Tensor:
        facts, parts = (self.rebuild(_field(x, name, dict)) for name in ("facts", "parts"))
        return restored(Stored(_field(x, "layout", str), facts, parts))

    def _mapping(self, kind: str, x: dict[str, Json]) -> dict[PyTree, PyTree]:
        items = _field(x, "items", _LIST)
        pairs = [(self._spread(self.rebuild(key)), self.rebuild(value)) for key, value in items]
        mapping = _MAPPINGS[kind](pairs)
        if kind == "state":
            mapping._metadata = self.rebuild(_field(x, "metadata", dict))
        return mapping


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
