"""The version of PyTorch that this package follows, as text that compares as a version."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from operator import eq, ge, gt, le, lt, ne
from typing import Any


class TorchVersion(str):
    """A version (PEP 440). It compares with versions, with text, and with tuples of numbers, as `(2, 1)`."""

    __slots__ = ()

    def _compare(self, other: object, compare: Callable[[Any, Any], bool]) -> Any:
        packaging = import_module("packaging.version")  # few programs compare
        if isinstance(other, Iterable) and not isinstance(other, str):
            other = ".".join(map(str, other))
        try:
            return compare(packaging.Version(self), packaging.Version(str(other)))
        except packaging.InvalidVersion:
            return NotImplemented

    def __eq__(self, other: object) -> Any:
        return self._compare(other, eq)

    def __ne__(self, other: object) -> Any:
        return self._compare(other, ne)

    def __lt__(self, other: object) -> Any:
        return self._compare(other, lt)

    def __le__(self, other: object) -> Any:
        return self._compare(other, le)

    def __gt__(self, other: object) -> Any:
        return self._compare(other, gt)

    def __ge__(self, other: object) -> Any:
        return self._compare(other, ge)

    __hash__ = str.__hash__
