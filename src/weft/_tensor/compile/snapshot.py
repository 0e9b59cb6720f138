"""A snapshot of the Python state that a function can reach.

A capture repeats what the function has computed, not its Python code. It is valid while that code would do the same:
while the globals, closed-over variables, defaults, attributes and containers that the function can read are unchanged.
What it can read follows from the names in its code, and in the code of the user's functions that it can reach.
Libraries are assumed not to change. A comparison before and after a run tells what the function has changed.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Container, Iterable, Sized
from enum import Enum
from functools import partial
from itertools import chain
from operator import call, is_, itemgetter
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import TypeGuard

import numpy as np

from weft._base.device import device
from weft._base.dtype import DType
from weft._base.guards import is_a, is_dict
from weft._base.types import Arg
from weft._tensor.compile.code import (
    is_library,
    is_library_module,
    is_own_class,
    is_users_class,
    names_in,
    stores,
)
from weft._tensor.generator import Generator
from weft._tensor.tensor import Tensor

_NUMBERS = (bool, int, float, complex, str, bytes, type(None))
_IMMUTABLE = (
    *_NUMBERS,
    DType,
    device,
    Generator,
    Enum,
    np.generic,
    np.dtype,
    range,
    slice,
    BuiltinFunctionType,
    CodeType,
)
_MOST_PARTS = 20_000
_MOST_BYTES = 1 << 16  # largest array that is compared in every call
_CONSTRUCTORS = ("__new__", "__init__", "__post_init__")
_MISSING = object()
_UNREADABLE = (KeyError, ValueError, RuntimeError, AttributeError)  # removed, or changed by another thread meanwhile

_COPIES: dict[type, Callable[[Arg], object]] = {
    set: frozenset,
    bytearray: bytes,
    np.ndarray: lambda a: (a.shape, a.dtype, a.tobytes()),
    random.Random: lambda generator: generator.getstate(),
    np.random.Generator: lambda generator: repr(generator.bit_generator.state),
    np.random.RandomState: lambda generator: repr(generator.get_state()),
}
"""Functions that copy objects whose parts cannot be compared by identity."""


class _Parts:
    """The objects at a location: `read()` gives the current ones, `labels` their names."""

    __slots__ = ("labels", "location", "objects", "read")

    def __init__(self, location: str, labels: list[str], read: Callable[[], Iterable[object]]) -> None:
        self.location = location
        self.labels = labels
        self.read = read
        self.objects = list(read())

    def difference(self) -> str:
        """The label of the first object that was replaced, or ""."""
        try:
            now = list(self.read())
        except _UNREADABLE:
            return self.location
        if len(now) != len(self.objects):
            return self.location
        for label, old, new in zip(self.labels, self.objects, now, strict=True):
            if not _is_same(old, new):
                return label
        self.objects = now
        return ""


def _is_same(old: Arg, new: Arg) -> bool:
    if old is new:
        return True
    if type(old) is not type(new):
        return False
    if isinstance(old, MethodType):
        return old.__self__ is new.__self__ and old.__func__ is new.__func__
    return isinstance(old, _NUMBERS) and (old == new or (old != old and new != new))


def _is_list(x: object) -> TypeGuard[list[object] | deque[object]]:
    return isinstance(x, (list, deque))


def _is_fixed(x: object) -> TypeGuard[tuple[object, ...] | frozenset[object]]:
    return isinstance(x, (tuple, frozenset))


def _is_wrapped(x: object) -> TypeGuard[staticmethod[..., object] | classmethod[object, ..., object]]:
    return isinstance(x, (staticmethod, classmethod))


class Snapshot:
    """The state that can be reached from some objects.

    tensors  the tensors, by identity
    opaque   the first thing that cannot be compared, as a text; then changes cannot be detected
    """

    def __init__(self) -> None:
        self.tensors: dict[int, Tensor] = {}
        self.opaque = ""
        self._seen: dict[int, object] = {}  # keeps objects alive, so that identities stay unique
        self._parts: list[_Parts] = []
        self._reads: list[Callable[[], Iterable[object]]] = []
        self._objects: list[object] = []  # those of all parts
        self._containers: list[Sized] = []  # those whose length matters
        self._places: list[str] = []
        self._lengths: list[int] = []
        self._copies: list[tuple[str, Callable[[], object], object]] = []
        self._names: set[str] = {"forward"}
        self._all_names = False
        self._codes: dict[CodeType, None] = {}
        self._picked: dict[tuple[int, int], set[str]] = {}  # names, by object and namespace
        self._holders: list[tuple[object, str]] = []  # objects with attributes
        self._waiting: list[tuple[object, str, bool]] = []

    def __contains__(self, thing: object) -> bool:
        return id(thing) in self._seen

    def add(self, thing: object, label: str) -> None:
        """Add an object, and everything that is read through it."""
        self._waiting.append((thing, label, False))
        self._reach()

    def add_code(self, code: CodeType, space: dict[str, object]) -> str:
        """Add what newly executed code names; returns the closed-over variables that cannot be read, or ""."""
        if code in self._codes:
            return ""
        unseen = f"the variables around `{code.co_qualname}`" if code.co_freevars else ""
        self._enter(code, space)
        self._reach()
        return unseen

    def difference(self) -> str:
        """What has changed since, as a text; "" if nothing has."""
        lengths = list(map(len, self._containers))
        if lengths != self._lengths:
            return next(place for place, a, b in zip(self._places, lengths, self._lengths, strict=True) if a != b)
        try:
            same = all(map(is_, chain.from_iterable(map(call, self._reads)), self._objects))
        except _UNREADABLE:
            same = False
        if not same:
            for parts in self._parts:
                location = parts.difference()
                if location:
                    return location
            self._remember()  # numbers and texts that are equal, but other objects
        for label, copy, old in self._copies:
            if copy() != old:
                return label
        return ""

    def line_of_store(self, location: str) -> str:
        """`file:line` of the assignment to what `difference` has named, or ""."""
        return stores(iter(self._codes), location.rpartition(".")[2])

    # --- reaching -----------------------------------------------------------------------------------------------

    def _reach(self) -> None:
        while self._waiting and not self.opaque:
            while self._waiting:
                thing, label, below_own = self._waiting.pop()
                if not isinstance(thing, _IMMUTABLE) and id(thing) not in self._seen:
                    self._seen[id(thing)] = thing
                    self._visit(thing, label, below_own)
            for holder, label in self._holders:  # functions added on the way name more attributes
                self._pick(holder, label)
            if len(self._seen) > _MOST_PARTS or sum(len(parts.objects) for parts in self._parts) > _MOST_PARTS:
                self.opaque = f"more than {_MOST_PARTS} Python objects"
        self._waiting.clear()
        self._remember()

    def _remember(self) -> None:
        self._objects = [x for parts in self._parts for x in parts.objects]

    def _later(self, things: Iterable[object], labels: Iterable[str], below_own: bool = False) -> None:
        self._waiting += [(x, label, below_own) for x, label in zip(things, labels, strict=True)]

    def _hold(
        self, location: str, labels: list[str], read: Callable[[], Iterable[object]], below_own: bool = False
    ) -> None:
        """Compare what `read` gives from now on, and add it. Its length is fixed, or compared by `_hold_length`."""
        if not labels:
            return
        parts = _Parts(location, labels, read)
        self._parts.append(parts)
        self._reads.append(read)
        self._later(parts.objects, labels, below_own)

    def _hold_length(self, container: Sized, label: str) -> None:
        self._containers.append(container)
        self._places.append(label)
        self._lengths.append(len(container))

    def _visit(self, thing: object, label: str, below_own: bool) -> None:
        kind = type(thing)
        if isinstance(thing, Tensor):
            self.tensors[id(thing)] = thing
        elif _is_list(thing):
            self._hold_length(thing, label)
            self._hold(label, [f"{label}[{i}]" for i in range(len(thing))], thing.__iter__, below_own)
        elif _is_fixed(thing):
            self._later(thing, [f"{label}[{i}]" for i in range(len(thing))], below_own)
        elif is_dict(thing):
            self._hold_length(thing, label)
            self._hold(label, [label] * len(thing), thing.__iter__, below_own)
            self._hold(label, [f"{label}[{_key_text(key)}]" for key in thing], thing.values, below_own)
        elif kind in _COPIES:
            self._copy(thing, label, _COPIES[kind])
        elif isinstance(thing, FunctionType):
            self._visit_function(thing, label)
        elif isinstance(thing, MethodType):
            self._later((thing.__self__, thing.__func__), ("self", label))
        elif is_a(thing, partial):
            self._later((thing.func, thing.args, thing.keywords), (label, f"{label}.args", f"{label}.keywords"))
        elif _is_wrapped(thing):
            self._later((thing.__func__,), (label,))
        elif isinstance(thing, property):
            self._later((thing.fget, thing.fset, thing.fdel), (label,) * 3)
        elif isinstance(thing, ModuleType):
            if not is_library_module(thing.__name__):
                self._holders.append((thing, label))
        elif isinstance(thing, type):
            if is_users_class(thing):
                self._holders.append((thing, label))
        elif hasattr(kind, "__next__"):
            self.opaque = f"the iterator `{label}`, whose place in what it goes through cannot be seen"
        elif not (below_own and is_own_class(kind) and not hasattr(kind, "_read_by_calls")):
            self._holders.append((thing, label))
            self._later((getattr(thing, "__dict__", {}).get("__wrapped__"),), (label,))

    def _copy(self, thing: object, label: str, copy: Callable[[Arg], object]) -> None:
        if isinstance(thing, np.ndarray) and thing.nbytes > _MOST_BYTES:
            self.opaque = f"the NumPy array `{label}` of {thing.nbytes} bytes, too many to compare in every call"
            return
        self._copies.append((label, partial(copy, thing), copy(thing)))

    def _visit_function(self, function: FunctionType, label: str) -> None:
        code = function.__code__
        cells = function.__closure__ or ()
        if cells:
            self._hold(label, list(code.co_freevars), partial(_contents, cells))
        if is_library(code.co_filename):
            return
        written = [f"{label}.{name}" for name in ("__code__", "__defaults__", "__kwdefaults__")]
        self._hold(label, written, lambda: (function.__code__, function.__defaults__, function.__kwdefaults__))
        self._holders.append((function, label))
        self._enter(code, function.__globals__)

    def _enter(self, code: CodeType, space: dict[str, object]) -> None:
        """Add what code names in its module, and note the attributes that it names."""
        if code in self._codes:
            return
        names = names_in(code)
        self._codes.update(dict.fromkeys((code, *names.inner)))
        self._names |= names.attributes
        self._all_names = self._all_names or names.any
        present = [name for name in sorted(names.globals) if name in space]
        absent = frozenset(names.globals).difference(space)
        self._hold_names(present, space, present, label := str(space.get("__name__")))
        if absent:
            self._hold(label, [label], lambda: (space.keys().isdisjoint(absent),))

    def _hold_names(
        self, names: list[str], space: Arg, labels: list[str], location: str, below_own: bool = False
    ) -> None:
        if len(names) == len(space):
            self._hold(location, labels, space.values, below_own)
        elif len(names) == 1:
            self._hold(location, labels, partial(_one, space, names[0]), below_own)
        elif names:
            self._hold(location, labels, partial(itemgetter(*names), space), below_own)

    # --- attributes ---------------------------------------------------------------------------------------------

    def _pick(self, holder: object, label: str) -> None:
        """Compare those attributes of an object that the known code names."""
        kind = type(holder)
        own = is_own_class(kind)
        space = getattr(holder, "__dict__", None)
        if space is not None:
            everything = not isinstance(holder, (ModuleType, type, FunctionType)) and (
                self._all_names or _reads_everything(kind)
            )
            wanted = space if everything else self._names | set(getattr(kind, "_read_by_calls", ()))
            if unread := getattr(kind, "_not_read_by_calls", None):
                wanted = set(wanted) - unread
            first = (id(holder), id(holder)) not in self._picked
            names = self._new_names(holder, holder, wanted, space)
            self._hold_names(names, space, [f"{label}.{name}" for name in names], label, own)
            if first and not (isinstance(holder, (ModuleType, type, FunctionType)) or _is_seen_elsewhere(kind)):
                self._hold_length(space, label)
        if isinstance(holder, (ModuleType, FunctionType)):
            return
        for base in (holder if isinstance(holder, type) else kind).__mro__:
            if is_users_class(base):
                self._pick_of_class(holder, base, label)

    def _pick_of_class(self, holder: object, base: type, label: str) -> None:
        space = vars(base)
        unnamed = _CONSTRUCTORS if isinstance(holder, type) else ()  # not called again for an existing object
        named = [n for n in space if n in self._names or n in unnamed or _is_called_by_syntax(n, space[n])]
        names = self._new_names(base, type, named, space)
        self._hold_names(names, space, [f"{base.__name__}.{name}" for name in names], base.__name__)
        if isinstance(holder, type):
            return
        slots = [n for n in named if isinstance(space[n], MemberDescriptorType)]
        slots = self._new_names(holder, base, slots, slots)
        if slots:
            read = partial(_slots_of, holder, slots)
            self._hold(label, [f"{label}.{name}" for name in slots], read)

    def _new_names(self, holder: object, space: Arg, wanted: Container[str], present: Iterable[str]) -> list[str]:
        done = self._picked.setdefault((id(holder), id(space)), set())
        names = [n for n in present if n in wanted and n not in done and n not in ("__dict__", "__weakref__")]
        done.update(names)
        return names


def _is_called_by_syntax(name: str, thing: object) -> bool:
    """Whether a method is called by Python's syntax without its name, as `__getitem__` is."""
    return name.startswith("__") and name not in _CONSTRUCTORS and isinstance(thing, FunctionType)


def _is_seen_elsewhere(kind: type) -> bool:
    """Whether an object of this package itself reports what a capture depends on."""
    return getattr(kind, "_read_by_calls", None) == ()


def _reads_everything(kind: type) -> bool:
    """Whether methods of this package read attributes of such an object, which the user's code does not name.

    `_read_by_calls` lists these attributes, for a class and the user's subclasses; if it is empty, it holds for all
    subclasses.
    """
    if _is_seen_elsewhere(kind):
        return False
    for base in kind.__mro__:
        if "_read_by_calls" in vars(base):
            return False
        if is_own_class(base):
            return True
    return False


def _key_text(key: object) -> str:
    """A dictionary's key as a text; a tensor must not be computed for this."""
    return repr(key) if isinstance(key, _NUMBERS) else "..."


def _one(space: Arg, name: str) -> tuple[object]:
    return (space[name],)


def _contents(cells: Iterable[CellType]) -> list[object]:
    """The contents of closed-over variables, including those that are not assigned yet."""
    return [_content(cell) for cell in cells]


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _slots_of(thing: object, names: Iterable[str]) -> list[object]:
    return [getattr(thing, name, _MISSING) for name in names]
