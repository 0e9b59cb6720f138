"""What a probe reads and writes at places that are computed: rows, lines, and parts with a computed beginning."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from weft._base.types import Arg
from weft._lazy.interpreter.layout import Shape, is_dense
from weft._lazy.interpreter.steps import READ, SCATTER, TAKE, WRITE, extension
from weft._lazy.interpreter.table import Opaque


class Places:
    """These methods of a probe, which has the attributes."""

    __slots__ = ()

    tracing: Arg
    shape: Shape
    strides: Shape
    dtype: np.dtype
    ndim: int
    size: Arg
    is_dense: bool
    shadow: Arg
    copy: Arg
    register_of: Arg

    def __getitem__(self, key: Arg) -> Arg:
        raise NotImplementedError

    def take(self, rows: Arg, axis: int) -> Arg:
        """Copies of rows along an axis, by their numbers, which are all within bounds."""
        numbers = self.tracing.converted(rows, np.dtype(np.intp))
        x = self if is_dense(self.shape[axis + 1 :], self.strides[axis + 1 :], self.dtype.itemsize) else self.copy()
        before, row = x.shape[:axis], x.shape[axis + 1 :]
        result = self.tracing.new((*before, *numbers.shape, *row), x.dtype)
        if result.size:
            first = x[(*[slice(None)] * axis, *[0] * (x.ndim - axis))]
            starts = result[(..., *[0] * len(row))]
            across = first.reshape(*before, *[1] * numbers.ndim) if before else first
            self._take(across, numbers, starts, x.strides[axis], prod(row))
        return result

    def take_along(self, positions: Arg, axis: int) -> Arg:
        """The elements at these positions along an axis, which are all within bounds."""
        result = self.tracing.new(positions.shape, self.dtype)
        if result.size:
            first = self[(*[slice(None)] * axis, slice(0, 1))]
            self._take(first, positions, result, self.strides[axis], 1)
        return result

    def take_lines(self, positions: Arg, length: int) -> Arg:
        """Copies of so many elements from each of these positions on, in an array of one dim."""
        numbers = self.tracing.converted(positions, np.dtype(np.intp))
        x = self if self.is_dense else self.copy()
        result = self.tracing.new((*numbers.shape, length), x.dtype)
        if result.size:
            self._take(x[0], numbers, result[..., 0], x.dtype.itemsize, length)
        return result

    def _take(self, first: Arg, rows: Arg, out: Arg, step: int, length: int) -> None:
        if not first.size:
            raise Opaque("rows of nothing")
        numbers = [first.number, rows.number]
        self.tracing.steps.append((TAKE, (length * self.dtype.itemsize, step), length, [out.number], numbers))

    def scatter(self, combine: np.ufunc | None, positions: Arg, inside: Arg, lines: Arg) -> None:
        """Write lines to this array of one dim, from these positions on, one after the other, where they are inside.

        What is there is combined with them by a ufunc, if one is given.
        """
        tracing = self.tracing
        if combine is not None and not extension().has_loop(combine, (self.dtype,) * 3):
            raise Opaque(combine.__name__)
        if combine is np.multiply and self.dtype.kind == "c":
            raise Opaque("complex products")  # which are rounded otherwise where `ufunc.at` computes them
        numbers = tracing.converted(positions, np.dtype(np.intp))
        wanted = tracing.converted(inside, np.dtype(bool))
        length = lines.shape[-1]
        if length > 1 and lines.strides[-1] != self.dtype.itemsize:
            lines = lines.copy()
        if lines.size and self.size:
            places = self.register_of(np.broadcast_to(self.shadow[0:1].reshape(()), lines.shape[:-1]))
            operands = [numbers.number, wanted.number, lines[..., 0].number]
            payload = combine, length, self.dtype.itemsize
            tracing.steps.append((SCATTER, payload, length, [places.number], operands))

    def read(self, starts: Sequence[Arg], most: Sequence[int], sizes: Sequence[int]) -> Arg:
        """A copy of the part with these sizes that begins at computed places; these are clamped to 0 … `most`."""
        result = self.tracing.new(tuple(sizes), self.dtype)
        if result.size:
            part = self[tuple([slice(0, size) for size in sizes])]
            payload, numbers = self._moved(starts, most)
            self.tracing.steps.append((READ, payload, 0, [result.number], [part.number, *numbers]))
        return result

    def write(self, part: Arg, starts: Sequence[Arg], most: Sequence[int]) -> None:
        """Overwrite the part that begins at computed places."""
        if part.size:
            place = self[tuple([slice(0, size) for size in part.shape])]
            payload, numbers = self._moved(starts, most)
            self.tracing.steps.append((WRITE, payload, 0, [place.number], [part.number, *numbers]))

    def _moved(self, starts: Sequence[Arg], most: Sequence[int]) -> tuple[Sequence[Shape], list[int]]:
        """The payload of a step that reads or writes a part, and the registers of where this begins."""
        if not extension().has_copy(self.dtype, self.dtype) or any(start.dtype == np.uint64 for start in starts):
            raise Opaque("a part")
        moving = [at for at, limit in enumerate(most) if limit]
        numbers = [self.tracing.converted(starts[at], np.dtype(np.intp)).number for at in moving]
        return tuple([(most[at], self.strides[at]) for at in moving]), numbers
