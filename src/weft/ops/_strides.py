"""Layouts of views: where a view's elements lie in the storage of its base.

A rule, the `layout` of a `View`, maps the layout of the first input and the row's other parameters to the layout of
the result. It returns None where PyTorch would have to copy. Dims are given as non-negative numbers, and the row's body
has already checked all parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from weft._base.dtype import DType
from weft._base.types import Arg
from weft.ops._dims import diagonal_length

Numbers = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes, strides and the place of the first element, counted in elements of the tensor's own type.

    offset   an int; or NaN where it depends on an index tensor that has not been read
    changed  whether elements are conjugated or negated when they are read
    spread   whether a view on the way showed an element in several places, so that a write must not go back through it
    """

    sizes: Numbers
    strides: Numbers
    offset: Any
    dtype: DType
    changed: bool = False
    spread: bool = False

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie side by side, row by row."""
        return self.is_ordered(range(len(self.sizes)))

    def is_ordered(self, order: Sequence[int]) -> bool:
        """Whether the elements lie side by side, with the dims of `order` from the outermost to the innermost."""
        step = 1
        for dim in reversed(order):
            if self.sizes[dim] != 1 and self.strides[dim] != step:
                return not prod(self.sizes)
            step *= self.sizes[dim]
        return True

    @property
    def is_dense(self) -> bool:
        """Whether the elements lie side by side in some order, each in a place of its own."""
        return self.is_ordered(self.order)

    @property
    def order(self) -> Numbers:
        """The dims from the outermost in memory to the innermost."""
        return tuple(sorted(range(len(self.sizes)), key=lambda d: (-self.strides[d], self.sizes[d] < 2)))

    @property
    def repeats(self) -> bool:
        """Whether several elements share one place because of a stride of 0, as after `expand`."""
        return prod(self.sizes) > 0 and any(
            size > 1 and step == 0 for size, step in zip(self.sizes, self.strides, strict=True)
        )

    @property
    def extent(self) -> int:
        """The least number of elements of a storage that starts at the first element; 0 for no elements."""
        if not prod(self.sizes):
            return 0
        return 1 + sum((size - 1) * step for size, step in zip(self.sizes, self.strides, strict=True))

    def overlaps(self, other: Layout, *, wholly: bool = False) -> bool:
        """Whether two dense layouts of one storage share elements; False if either is not dense.

        The same elements in the same order count only with `wholly`.
        """
        if not (prod(self.sizes) and prod(other.sizes) and self.is_dense and other.is_dense):
            return False
        (start, end), (first, last) = self._span, other._span
        if (start, end) == (first, last):
            return wholly or self.strides != other.strides
        return start < last and first < end

    @property
    def _span(self) -> tuple[int, int]:
        """The bytes of a dense layout in its storage: the first, and one past the last."""
        start = self.offset * self.dtype.itemsize
        return start, start + prod(self.sizes) * self.dtype.itemsize


Rule = Callable[..., Layout | None]


def row_major(sizes: Sequence[int]) -> Numbers:
    """The strides of elements that lie side by side, row by row."""
    strides: list[int] = []
    step = 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def same(layout: Layout, *_: object) -> Layout:
    """The layout itself."""
    return layout


def ordered(order_of: Callable[..., Sequence[int]]) -> Rule:
    """The rule for dims in another order; `order_of(ndim, *params)` gives that order."""

    def rule(layout: Layout, *params: Arg) -> Layout:
        order = order_of(len(layout.sizes), *params)
        return replace(
            layout, sizes=tuple(layout.sizes[d] for d in order), strides=tuple(layout.strides[d] for d in order)
        )

    return rule


def shaped(sizes_of: Callable[..., Sequence[int]]) -> Rule:
    """The rule for the same elements in other sizes, which `sizes_of(sizes, *params)` gives."""

    def rule(layout: Layout, *params: Arg) -> Layout | None:
        sizes = tuple(sizes_of(layout.sizes, *params))
        strides = regrouped_strides(layout, sizes)
        return None if strides is None else replace(layout, sizes=sizes, strides=strides)

    return rule


def regrouped_strides(layout: Layout, sizes: Numbers) -> Numbers | None:
    """Strides for the same elements in other sizes, or None where no strides can. Adjacent dims are regrouped."""
    if not layout.sizes:
        return (1,) * len(sizes)
    if not prod(layout.sizes):
        return layout.strides if sizes == layout.sizes else row_major(sizes)
    strides = [0] * len(sizes)
    at = len(sizes) - 1
    count, step = 1, layout.strides[-1]
    for dim in reversed(range(len(layout.sizes))):
        count *= layout.sizes[dim]
        if dim and (layout.sizes[dim - 1] == 1 or layout.strides[dim - 1] == count * step):
            continue  # the group goes on
        covered = 1
        while at >= 0 and (covered < count or sizes[at] == 1):
            strides[at] = covered * step
            covered *= sizes[at]
            at -= 1
        if covered != count:
            return None
        count, step = 1, layout.strides[dim - 1]
    return tuple(strides)


def without(dims_of: Callable[..., Sequence[int]]) -> Rule:
    """The rule for views without the dims that `dims_of(sizes, *params)` lists."""

    def rule(layout: Layout, *params: Arg) -> Layout:
        return _left_out(layout, dims_of(layout.sizes, *params))

    return rule


def _left_out(layout: Layout, gone: Sequence[int]) -> Layout:
    kept = [d for d in range(len(layout.sizes)) if d not in gone]
    return replace(layout, sizes=tuple(layout.sizes[d] for d in kept), strides=tuple(layout.strides[d] for d in kept))


def inserted(layout: Layout, dim: int) -> Layout:
    """With a new dim of size one, as `unsqueeze`."""
    sizes, strides = layout.sizes, layout.strides
    at = dim % (len(sizes) + 1)
    step = sizes[at] * strides[at] if at < len(sizes) else 1
    return replace(layout, sizes=(*sizes[:at], 1, *sizes[at:]), strides=(*strides[:at], step, *strides[at:]))


def expanded(layout: Layout, size: Sequence[int]) -> Layout:
    """Dims of size one and new leading dims have stride 0."""
    new = len(size) - len(layout.sizes)
    sizes, strides = list(size), [0] * len(size)
    for at in reversed(range(len(size))):
        have = layout.sizes[at - new] if at >= new else 1
        step = layout.strides[at - new] if at >= new else sizes[at + 1] * strides[at + 1] if at + 1 < len(size) else 1
        sizes[at] = have if size[at] == -1 else size[at]
        strides[at] = step if sizes[at] == have else 0
    wider = replace(layout, sizes=tuple(sizes), strides=tuple(strides))
    return replace(wider, spread=layout.spread or wider.repeats)


def selected(layout: Layout, dim: int, index: int) -> Layout:
    """One slice, without its dim; a negative index counts from the end."""
    place = index % layout.sizes[dim]
    part = _left_out(layout, (dim,))
    return replace(part, offset=layout.offset + place * layout.strides[dim])


def sliced(layout: Layout, dim: int, start: int, length: int, step: int = 1) -> Layout:
    """`length` slices from `start` on."""
    sizes, strides = list(layout.sizes), list(layout.strides)
    offset = layout.offset + start * strides[dim]
    sizes[dim], strides[dim] = length, strides[dim] * step
    return replace(layout, sizes=tuple(sizes), strides=tuple(strides), offset=offset)


def diagonals(layout: Layout, offset: int = 0, dim1: int = 0, dim2: int = 1, length: int | None = None) -> Layout:
    """The diagonals of two dims, as a last dim."""
    del length
    rows, columns = layout.sizes[dim1], layout.sizes[dim2]
    count = diagonal_length(rows, columns, offset)
    first = max(offset, 0) * layout.strides[dim2] + max(-offset, 0) * layout.strides[dim1]
    rest = _left_out(layout, (dim1, dim2))
    return replace(
        rest,
        sizes=(*rest.sizes, count),
        strides=(*rest.strides, layout.strides[dim1] + layout.strides[dim2]),
        offset=layout.offset + first * bool(count),
    )


def windows(layout: Layout, dimension: int, size: int, step: int) -> Layout:
    """Windows along a dim, with their contents as a last dim."""
    if not layout.sizes:
        return replace(layout, sizes=(size,), strides=(1,))
    sizes, strides = list(layout.sizes), list(layout.strides)
    each = strides[dimension]
    sizes[dimension], strides[dimension] = (sizes[dimension] - size) // step + 1, each * step
    return replace(layout, sizes=(*sizes, size), strides=(*strides, each), spread=layout.spread or step < size)


def conjugated(layout: Layout) -> Layout:
    """The layout with complex elements conjugated when they are read."""
    return replace(layout, changed=not layout.changed) if layout.dtype.is_complex else layout


def as_parts(layout: Layout) -> Layout:
    """Complex numbers as pairs of real numbers, along a new last dim."""
    halves = part(layout)
    return replace(halves, sizes=(*halves.sizes, 2), strides=(*halves.strides, 1))


def part(layout: Layout, place: int = 0) -> Layout:
    """The real (0) or the imaginary (1) parts of complex numbers; a real number is its own real part."""
    if not layout.dtype.is_complex:
        return layout
    return replace(
        layout,
        strides=tuple(2 * step for step in layout.strides),
        offset=2 * layout.offset + place,
        dtype=layout.dtype.to_real(),
        changed=layout.changed and place == 1,
    )


def as_numbers(layout: Layout) -> Layout:
    """Adjacent pairs of real numbers, along the last dim, as complex numbers."""
    return replace(
        layout,
        sizes=layout.sizes[:-1],
        strides=tuple(step // 2 for step in layout.strides[:-1]),
        offset=layout.offset // 2,
        dtype=layout.dtype.to_complex(),
    )


def strided(layout: Layout, size: Sequence[int], stride: Sequence[int], storage_offset: int) -> Layout:
    """Sizes, strides and offset as given, whatever the input's are."""
    places = replace(layout, sizes=tuple(size), strides=tuple(stride), offset=storage_offset)
    return replace(places, spread=not places.is_dense)
