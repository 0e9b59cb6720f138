"""Conversion of the tensors in a nested structure, all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from weft._base.types import Arg, PyTree
from weft.xla._nested import replaced

if TYPE_CHECKING:
    from weft.xla._nested import Select


class ToXlaTensorArena:
    """Converts the tensors in nested structures that `select_fn` chooses, by one call of `convert_fn` with all of them.

    `convert_fn` returns one replacement for each tensor, in order. It is not called if there is nothing to convert.
    """

    def __init__(self, convert_fn: Callable[[list[Arg]], Iterable[object]], select_fn: Select) -> None:
        self._convert_fn = convert_fn
        self._select_fn = select_fn

    def transform(self, inputs: PyTree) -> PyTree:
        """A copy of a structure with the replacements."""
        return replaced(inputs, self._select_fn, self._convert_fn)
