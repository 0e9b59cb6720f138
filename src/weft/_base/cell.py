"""Cells: what is set for the process or a thread, and what is computed may depend on.

A captured function (`weft.compile`) is replayed without its Python code, so a replay must not follow settings of
another time. All of them stand in cells. A replay is valid only while every cell has the value that it had before the
capture (`settings`), whether the function has read it or not: a cache of the library may have read it long before, at
another call. So who reads or sets a cell need not say so. A function that leaves a cell changed is not captured.

State on which no result depends is marked with the reason, by a comment `# no cell: …`, and a test finds what has
neither (`tests/_base/test_cells.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from weft._base.types import AnyCallable, Result

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class Cell(Generic[T]):
    """A value of the whole process, which must be hashable: numbers, texts, tuples of such, objects by identity.

    name   what it is, as a text
    """

    __slots__ = ("_initial", "_is_listed", "_value", "name")

    def __init__(self, name: str, initial: T) -> None:
        self.name = name
        self._initial = self._value = initial
        self._is_listed = False

    def get(self) -> T:
        """The value."""
        return self._value

    def set(self, value: T) -> None:
        """Replace the value."""
        self._list()
        self._value = value

    @contextmanager
    def within(self, value: T) -> Generator[None]:
        """A block in which the cell has another value."""
        before = self.get()
        self.set(value)
        try:
            yield
        finally:
            self.set(before)

    def is_as_at_first(self) -> bool:
        """Whether the cell has the value that it was made with."""
        return self.get() == self._initial

    def _list(self) -> None:
        if not self._is_listed:
            self._is_listed = True
            _set_once.append(self)


class LocalCell(Cell[T]):
    """A value of a thread or task. A new thread begins with the first one; a new task with that of who starts it."""

    __slots__ = ("_variable",)

    def __init__(self, name: str, initial: T) -> None:
        super().__init__(name, initial)
        self._variable = ContextVar(name, default=initial)

    def get(self) -> T:
        """The value in this thread or task."""
        return self._variable.get()

    def set(self, value: T) -> None:
        """Replace the value in this thread or task."""
        self._list()
        self._variable.set(value)


class DerivedCell(Cell[T]):
    """A value that is read from where it stands, as in an object that several threads share."""

    __slots__ = ("get",)

    def __init__(self, name: str, read: Callable[[], T]) -> None:
        super().__init__(name, read())
        self.get = read
        self._list()

    def set(self, value: T) -> None:
        """Raises `TypeError`: the value is set where it stands."""
        raise TypeError(f"{self.name} cannot be set here")


class Contents(tuple[Any, ...]):
    """What a table holds between two changes, compared by identity."""

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class Registry(OrderedDict[K, V]):
    """A table of the process that is filled one by one, as by hooks. After each change, its cell has new contents."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._cell = Cell[Contents | None](name, None)
        self._first: dict[K, V] = {}

    def settle(self) -> None:
        """Count what the table holds now, which the library itself has entered, as its first content."""
        self._first = dict(self)
        self._note()

    def _note(self) -> None:
        self._cell.set(None if dict(self) == self._first else Contents(self.values()))


def _noting(name: str) -> AnyCallable:
    change = getattr(OrderedDict, name)

    def changed(self: Registry[Any, Any], *args: object, **kwargs: object) -> Result:
        try:
            return change(self, *args, **kwargs)
        finally:
            self._note()  # pyright: ignore[reportPrivateUsage]

    return changed


for _name in ("__delitem__", "__setitem__", "clear", "move_to_end", "pop", "popitem", "setdefault", "update"):
    setattr(Registry, _name, _noting(_name))

_set_once: list[Cell[Any]] = []  # no cell: those that may differ from their first values; others are not compared


def settings() -> tuple[tuple[Cell[Any], Any], ...]:
    """The cells whose values are not those that they were made with, with these values: what a replay depends on."""
    return tuple([(cell, cell.get()) for cell in _set_once if not cell.is_as_at_first()])
