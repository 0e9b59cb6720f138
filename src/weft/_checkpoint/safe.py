"""The globals allowed in PyTorch's files: plain containers and numbers, and those that the program trusts."""

from __future__ import annotations

import codecs
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import NoReturn, TypeGuard, TypeVar

import numpy as np

from weft._base.device import device
from weft._base.guards import is_a, is_plain_dict, is_plain_tuple, is_tuple
from weft._base.size import Size
from weft._base.types import AnyCallable
from weft._checkpoint.keys import KeyChecker, Unpickled
from weft._checkpoint.pickled import Global, itself, short_repr
from weft._checkpoint.torch_names import full_names
from weft.errors import ArgumentError, PickleError, ValueRangeError

blocked_modules = ("sys", "os", "posix", "nt")
"""Modules of which nothing is called, whatever the program trusts."""

_NUMBER_TYPE = re.compile(r"[biufc][0-9]{1,2}")


Trusted = AnyCallable | tuple[AnyCallable, str]
"""A class or function, or a pair of it and the name that files have for it."""


A = TypeVar("A", bound=np.ndarray | np.dtype)


# no cell: files are not read in a captured function
class _Allowed:
    """The globals that the program trusts, by name. The dict is replaced as a whole, so that readers need no lock."""

    by_name: dict[str, AnyCallable] = {}  # noqa: RUF012  shared on purpose: PyTorch keeps it per process


def _named(trusted: Iterable[Trusted]) -> dict[str, AnyCallable]:
    table: dict[str, AnyCallable] = {}
    for entry in trusted:
        if is_tuple(entry):
            if len(entry) != 2:
                raise ValueRangeError(
                    "Expected tuple of length 2 (global, str of callable full path), but got tuple of length: "
                    f"{len(entry)}"
                )
            entry, name = entry
            if type(name) is not str:
                raise ArgumentError(
                    f"Expected second item in tuple to be str of callable full path, but got: {type(name)}"
                )
            table[name] = entry
        else:
            name = getattr(entry, "__qualname__", None)  # files cannot refer to an object without a name
            table[f"{entry.__module__}.{name}" if name else repr(entry)] = entry
    return table


def add_safe_globals(safe_globals: list[Trusted]) -> None:
    """Trust classes and functions: `load` may call them if a file of PyTorch's names them.

    A pair of an object and a string trusts it under that name. Loading then runs their code, with arguments from the
    file.
    """
    _Allowed.by_name = _Allowed.by_name | _named(safe_globals)


def get_safe_globals() -> list[Trusted]:
    """The classes and functions that are trusted."""
    return list(_Allowed.by_name.values())


def trusted_by_name() -> dict[str, AnyCallable]:
    """The classes and functions that are trusted, by name."""
    return dict(_Allowed.by_name)


def is_trusted(name: str) -> bool:
    """Whether the program trusts what has this name in a file."""
    return _trusted(name) is not None


def clear_safe_globals() -> None:
    """Remove all trusted classes and functions."""
    _Allowed.by_name = {}


class safe_globals:
    """Trust classes and functions within a `with` block."""

    def __init__(self, safe_globals: list[Trusted]) -> None:
        self._trusted = safe_globals

    def __enter__(self) -> None:
        self._before = _Allowed.by_name
        _Allowed.by_name = self._before | _named(self._trusted)

    def __exit__(self, *_: object) -> None:
        _Allowed.by_name = self._before


def trusted_global(name: str) -> Global:
    """A global that the program trusts; for all others a `PickleError`, which says how to allow them."""
    if name.partition(".")[0] in blocked_modules:
        raise PickleError(f"Trying to load unsupported GLOBAL {name} whose module {name.partition('.')[0]} is blocked.")
    trusted = _trusted(name)
    if trusted is None:
        short = name.removeprefix("builtins.")
        raise PickleError(
            f"Weights only load failed. Unsupported global: GLOBAL {short} was not an allowed global by default. If "
            f"you trust this class or function, use `torch.serialization.add_safe_globals([{short}])` or the "
            f"`torch.serialization.safe_globals([{short}])` context manager to allowlist it. If you trust the source "
            "of the file, whose code is then run, load it with `weights_only=False`."
        )
    new = partial(trusted.__new__, trusted) if isinstance(trusted, type) else None
    return Global(name, trusted, new, trusted=trusted)


def _trusted(name: str) -> AnyCallable | None:
    """What the program trusts under this name: its own, or that which PyTorch has for it."""
    for own, entry in _Allowed.by_name.items():
        if own == name:
            return entry
        if hasattr(entry, "__qualname__") and {own, name} <= full_names(entry):
            return entry
    return None


def global_of(x: Unpickled) -> Unpickled:
    """What stands for a class or function that the program trusts, if `x` is one itself; else `x`."""
    if type(x) is Global or not callable(x):
        return x
    trusted = next((name for name, entry in _Allowed.by_name.items() if entry is x or entry == x), None)
    return x if trusted is None else trusted_global(trusted)


def set_trusted_state(x: Unpickled, state: Unpickled) -> Unpickled:
    """Set a state on an object of a trusted class, as Python's pickle does."""
    if type(x) not in _Allowed.by_name.values():
        raise PickleError(
            f"its pickle sets the state of a {type(x).__name__}, which has none to set. Can only build Tensor, "
            f"Parameter, OrderedDict or types allowlisted via `add_safe_globals`, but got {type(x)}"
        )
    if hasattr(x, "__setstate__"):
        x.__setstate__(state)
        return x
    parts: tuple[Unpickled, ...] = state if is_tuple(state) and len(state) == 2 else (state, None)
    attributes, in_slots = [_resolved(part or {}) for part in parts]
    if attributes:  # an object of a class with slots alone has no `__dict__`
        x.__dict__.update(attributes)
    for name, value in in_slots.items():
        setattr(x, name, value)
    return x


def _resolved(attributes: dict[str, Unpickled]) -> dict[str, Unpickled]:
    return {name: itself(value) for name, value in attributes.items()}


def _is_ordered(x: object) -> TypeGuard[OrderedDict[Unpickled, Unpickled]]:
    return type(x) is OrderedDict


def _is_collection(x: object) -> TypeGuard[Collection[Unpickled]]:
    return isinstance(x, (list, tuple, set, frozenset))


# --- containers and numbers -----------------------------------------------------------------------------------


class Plain:
    """The functions that pickles call to build plain objects. They may copy up to `limit` items in all."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self.keys = KeyChecker()

    def table(self) -> dict[str, Global]:
        """The globals of plain objects by name."""
        makers: dict[str, AnyCallable] = {
            "collections.OrderedDict": self._ordered,
            "collections.Counter": self._counter,
            "builtins.set": self._set,
            "builtins.frozenset": self._frozenset,
            "builtins.bytearray": self._bytearray,
            "builtins.complex": self._complex,
            "builtins.bytes": lambda: b"",  # protocols before 3 write empty bytes as a call
            "_codecs.encode": self._encode,
            "torch.Size": self._size,
            "torch.device": self._device,
            "numpy.dtype": self._numpy_type,
            "numpy.ndarray": self._no_array,
        }
        for core in ("numpy._core", "numpy.core"):
            makers[f"{core}.multiarray.scalar"] = self._scalar
            makers[f"{core}.multiarray._reconstruct"] = self._empty_array
            makers[f"{core}.numeric._frombuffer"] = self._full_array
        return {name: Global(name, make) for name, make in makers.items()}

    def set_state(self, x: Unpickled, state: Unpickled) -> Unpickled:
        """Set the state of an object, and return the object; `PickleError` if it must not have one."""
        if _is_ordered(x):
            if not is_plain_dict(state) or any(type(k) is not str or hasattr(OrderedDict, k) for k in state):
                raise PickleError("its pickle gives an OrderedDict attributes that it must not have")
            vars(x).update(state)
            return x
        if is_a(x, np.ndarray, np.dtype):
            return _set_numpy_state(x, state, self.spend)
        return set_trusted_state(x, state)

    def spend(self, count: int) -> None:
        """Count copied items; `PickleError` if they are more than the limit."""
        self._left -= count
        if self._left < 0:
            raise PickleError("its pickle copies what it holds again and again")

    def _list(self, items: Unpickled) -> Collection[Unpickled]:
        if not _is_collection(items):
            raise PickleError(f"its pickle makes a container from a {type(items).__name__}")
        self.spend(len(items))
        return items

    def _set(self, items: Unpickled = ()) -> set[Unpickled]:
        return set(map(self.keys.checked, self._list(items)))

    def _frozenset(self, items: Unpickled = ()) -> frozenset[Unpickled]:
        return frozenset(self._set(items))

    def _ordered(self, items: Unpickled = ()) -> OrderedDict[Unpickled, Unpickled]:
        return OrderedDict([(self.keys.checked(key), value) for key, value in map(self._list, self._list(items))])

    def _counter(self, counts: Unpickled = None) -> Counter[Unpickled]:
        if not is_plain_dict(counts) or not all(type(n) is int for n in counts.values()):
            raise PickleError("its pickle counts with something else than numbers")
        self.spend(len(counts))
        return Counter(counts)

    def _encode(self, text: Unpickled, encoding: Unpickled = "utf-8") -> bytes:
        if type(text) is not str or encoding not in ("latin1", "latin-1", "utf-8", "ascii"):
            raise PickleError("its pickle encodes something else than text as bytes")
        self.spend(len(text))
        return codecs.encode(text, encoding)

    def _bytearray(self, content: Unpickled = b"", encoding: Unpickled = "latin1") -> bytearray:
        if type(content) not in (bytes, bytearray):
            content = self._encode(content, encoding)
        self.spend(len(content))
        return bytearray(content)

    def _complex(self, real: Unpickled, imag: Unpickled) -> complex:
        if type(real) is not float or type(imag) is not float:
            raise PickleError("its pickle makes a complex number of something else than floats")
        return complex(real, imag)

    def _size(self, sizes: Unpickled = ()) -> Size:
        if not all(type(n) is int for n in self._list(sizes)):
            raise PickleError("its pickle makes a torch.Size of something else than integers")
        return Size(sizes)

    def _device(self, kind: Unpickled, index: Unpickled = None) -> device:
        if type(kind) is not str or type(index) not in (int, type(None)):
            raise PickleError("its pickle makes a torch.device of something else than a name and an index")
        return device(kind, index)

    def _numpy_type(self, code: Unpickled, *_: Unpickled) -> np.dtype:
        if type(code) is not str or not _NUMBER_TYPE.fullmatch(code):
            raise PickleError(f"its pickle holds NumPy elements of type {short_repr(code)}; numbers can be loaded")
        return np.dtype(code)

    def _scalar(self, dtype: Unpickled, content: Unpickled) -> np.generic:
        if not is_a(dtype, np.dtype) or type(content) is not bytes or len(content) != dtype.itemsize:
            raise PickleError("its pickle has a NumPy number whose type and bytes disagree")
        return np.frombuffer(content, dtype.newbyteorder("<"))[0].astype(dtype)

    def _no_array(self, *_: Unpickled) -> NoReturn:
        raise PickleError("its pickle makes a NumPy array without elements")

    def _empty_array(self, *_: Unpickled) -> np.ndarray:
        return np.empty(0, np.uint8)

    def _full_array(self, content: Unpickled, dtype: Unpickled, shape: Unpickled, order: Unpickled) -> np.ndarray:
        array = self._empty_array()
        content = content if type(content) is bytes else bytes(self._bytearray(content))
        return _set_numpy_state(array, (1, shape, dtype, order == "F", content), self.spend)


def _set_numpy_state(x: A, state: Unpickled, spend: Callable[[int], None]) -> A:
    """Set the elements of a NumPy array, or check that a NumPy type is little-endian; returns the array or type.

    `spend` is called with the number of copied bytes.
    """
    if isinstance(x, np.dtype):
        if not is_plain_tuple(state) or len(state) < 2 or state[1] not in ("<", "|", "="):
            raise PickleError("its pickle holds NumPy elements that are not little-endian")
        return x
    _, shape, dtype, _, content = state
    if not isinstance(dtype, np.dtype) or type(content) is not bytes or not all(type(n) is int for n in shape):
        raise PickleError("its pickle has a NumPy array whose elements are no numbers")
    spend(len(content))
    x.__setstate__(state)
    return x
