"""Dynamic slices, gathers and scatters: parts of arrays at positions that are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from weft._base.types import AnyArray, Arg
from weft._lazy.interpreter.table import Array, Binary, Bind, Function, MissingPrimitive, Params, Type, Types, primitive
from weft.ops._kinds import Scalar

# --- one place ------------------------------------------------------------------------------------------------


def _corner(starts: Sequence[Array], most: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    """The key of the part with these starts and sizes; starts are clamped to 0 … `most`, so that it lies inside."""
    places = [min(max(int(start), 0), limit) for start, limit in zip(starts, most, strict=True)]
    return tuple([slice(at, at + size) for at, size in zip(places, sizes, strict=True)])


@primitive("dynamic_slice", view=True, dynamic=True)
def _dynamic_slice(params: Params, ins: Types, outs: Types) -> Function:
    sizes = params["slice_sizes"]
    most = [size - length for size, length in zip(ins[0].shape, sizes, strict=True)]

    def read(x: Arg, *starts: Array) -> Array:
        if type(x) is not np.ndarray:
            return x.read(starts, most, sizes)  # a probe, which stands for this in one step
        return x[(*_corner(starts, most, sizes), ...)]

    return read


@primitive("dynamic_update_slice")
def _dynamic_update_slice(params: Params, ins: Types, outs: Types) -> Function:
    sizes = ins[1].shape
    most = [size - length for size, length in zip(ins[0].shape, sizes, strict=True)]

    def write(x: Array, part: Array, *starts: Array) -> Array:
        result: Arg = x.copy()
        if type(result) is not np.ndarray:
            result.write(part, starts, most)
            return result
        result[_corner(starts, most, sizes)] = part
        return result

    return write


# --- many places ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Windows:
    """The windows of an operand that a gather reads or a scatter writes. An index vector gives the start of each.

    shape     the shape of the operand
    sizes     the size of a window in each dim of the operand
    indexed   the dim of the operand for each component of an index vector
    batching  pairs of batch dims that are iterated together: (the operand's, the indices')
    batch     the shape of the indices without the dim of the index vectors
    """

    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    indexed: tuple[int, ...]
    batching: tuple[tuple[int, int], ...]
    batch: tuple[int, ...]

    def starts(self, indices: Array) -> list[Array]:
        """The starts of the windows, for each component of the index vectors: arrays of shape `batch`."""
        return [indices[..., at].astype(np.intp, copy=False) for at in range(len(self.indexed))]

    def limits(self) -> list[int]:
        """The largest start of a window that lies inside of the operand, for each component of the index vectors."""
        return [self.shape[d] - self.sizes[d] for d in self.indexed]

    def inside(self, starts: Sequence[Array]) -> Array:
        """Whether each window lies inside of the operand, of shape `batch`."""
        valid = np.ones(self.batch, bool)
        for start, limit in zip(starts, self.limits(), strict=True):
            valid = valid & (start >= 0) & (start <= limit)
        return valid

    def moved_inside(self, starts: Sequence[Array]) -> list[Array]:
        """The starts, clamped so that all windows lie inside of the operand."""
        return [np.minimum(np.maximum(s, 0), limit) for s, limit in zip(starts, self.limits(), strict=True)]

    def part(self, starts: Sequence[Array]) -> tuple[slice, ...]:
        """The key of the window in the operand, if there is only one."""
        first = dict(zip(self.indexed, [start.item() for start in starts], strict=True))
        return tuple([slice(first.get(d, 0), first.get(d, 0) + size) for d, size in enumerate(self.sizes)])

    def lines(self) -> tuple[int, int]:
        """How windows are cut into lines, whose elements follow each other: dims of a window before those of a line,
        and the elements of a line."""
        length = 1
        for dim in reversed(range(len(self.shape))):
            length *= self.sizes[dim]
            if self.sizes[dim] != self.shape[dim]:
                return dim, length
        return 0, length

    def place(self, starts: Sequence[Array], dim: int, size: int) -> Array:
        """The positions of the windows' first `size` elements in one dim of the operand; it broadcasts to (*batch,
        *sizes)."""
        ndim = len(self.batch) + len(self.shape)
        steps = np.arange(size).reshape([-1 if d == dim else 1 for d in range(len(self.shape))])
        for operand_dim, batch_dim in self.batching:
            if operand_dim == dim:
                along = [-1 if d == batch_dim else 1 for d in range(ndim)]
                return np.arange(self.batch[batch_dim]).reshape(along)
        if dim not in self.indexed:
            return steps
        start = starts[self.indexed.index(dim)]
        return start.reshape(*self.batch, *[1] * len(self.shape)) + steps

    def positions(self, starts: Sequence[Array], before: int | None = None) -> Array:
        """The positions of the windows' elements in the flattened operand, of shape (*batch, *sizes).

        Of lines, those of their first elements: sizes are 1 in the dims that are not `before` those of a line.
        """
        sizes = [size if before is None or dim < before else 1 for dim, size in enumerate(self.sizes)]
        total: Arg = 0
        stride = 1
        for dim in reversed(range(len(self.shape))):
            total = total + self.place(starts, dim, sizes[dim]) * stride
            stride *= self.shape[dim]
        return np.broadcast_to(total, (*self.batch, *sizes))


def _windows(
    operand: Type, indices: Type, sizes: Sequence[int], indexed: Sequence[int], *batching: Sequence[int]
) -> _Windows:
    along = tuple(zip(*batching, strict=True))
    return _Windows(operand.shape, tuple(sizes), tuple(indexed), along, indices.shape[:-1])


def _fill_value(params: Params, dtype: np.dtype) -> Scalar:
    """The value that `jax.lax.gather` gives for windows that do not lie inside of the operand."""
    value = params.get("fill_value")
    if value is not None:
        return value
    if dtype.kind == "b":
        return True
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        return bounds.min if dtype.kind == "i" else bounds.max
    return np.nan


def _drops_out_of_bounds(params: Params) -> bool:
    return params["mode"].name == "FILL_OR_DROP"


@primitive("gather")
def _gather(params: Params, ins: Types, outs: Types) -> Binary:
    numbers = params["dimension_numbers"]
    windows = _windows(
        ins[0],
        ins[1],
        params["slice_sizes"],
        numbers.start_index_map,
        numbers.operand_batching_dims,
        numbers.start_indices_batching_dims,
    )
    dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    finish = _finished(windows, dropped, numbers.offset_dims)
    read = _reader(windows)
    if not _drops_out_of_bounds(params):
        return lambda x, indices: finish(read(x, windows.moved_inside(windows.starts(indices))))
    fill = np.asarray(_fill_value(params, ins[0].dtype)).astype(ins[0].dtype)

    def gather(x: Array, indices: Array) -> Array:
        starts = windows.starts(indices)
        inside = windows.inside(starts)
        if type(inside) is np.ndarray and inside.all():  # a probe tells nothing
            return finish(read(x, starts))
        if 0 in x.shape:
            return np.broadcast_to(fill, outs[0].shape).copy()
        values = read(x, windows.moved_inside(starts))
        return finish(np.where(inside.reshape(*inside.shape, *[1] * len(windows.shape)), values, fill))

    return gather


def _reader(windows: _Windows) -> Callable[[Array, Sequence[Array]], Array]:
    """A function (operand, starts) -> the elements of the windows, of shape (*batch, *sizes)."""
    whole = (*windows.batch, *windows.sizes)
    rows = windows.indexed[0] if len(windows.indexed) == 1 and not windows.batching else None
    full = [s == w for s, w in zip(windows.shape, windows.sizes, strict=True)]
    if rows is not None and windows.sizes[rows] == 1 and all(full[:rows]) and all(full[rows + 1 :]):
        order = (
            *range(rows, rows + len(windows.batch)),
            *range(rows),
            *range(rows + len(windows.batch), len(windows.batch) + len(windows.shape) - 1),
        )
        return lambda x, starts: x.take(starts[0], rows).transpose(order).reshape(whole)
    before, length = windows.lines()

    def read(x: Array, starts: Sequence[Array]) -> Array:
        flat: Arg = x.reshape(-1)
        if type(flat) is not np.ndarray:
            return flat.take_lines(windows.positions(starts, before), length).reshape(whole)
        if prod(windows.batch) == 1:
            return x[windows.part(starts)].reshape(whole).copy()
        return flat.take(windows.positions(starts))

    return read


def _finished(windows: _Windows, dropped: Sequence[int], offset_dims: Sequence[int]) -> Callable[[Array], Array]:
    """A function that brings the elements of the windows into the shape of the result."""
    kept = [size for d, size in enumerate(windows.sizes) if d not in dropped]
    shape = (*windows.batch, *kept)
    batch_dims = [d for d in range(len(shape)) if d not in offset_dims]
    order = [0] * len(shape)
    for at, d in enumerate((*batch_dims, *offset_dims)):
        order[d] = at
    return lambda values: values.reshape(shape).transpose(order)


def _scatters(combine: np.ufunc | None) -> Bind:
    """Bind scatters that combine elements with one update after another, or replace them if `combine` is None."""

    def bind(params: Params, ins: Types, outs: Types) -> Function:
        if combine is None and params["update_jaxpr"] is not None:
            raise MissingPrimitive("scatter[update_jaxpr]")
        windows, order = _written(params["dimension_numbers"], *ins)
        clips = params["mode"].name == "CLIP"
        write = _write_one if prod(windows.batch) == 1 else _write_many

        def scatter(x: Array, indices: Array, updates: Array) -> Array:
            starts = windows.starts(indices)
            if clips:
                starts = windows.moved_inside(starts)
            result: Arg = x.copy(order="C")
            updates = updates.transpose(order).reshape(*windows.batch, *windows.sizes)
            if type(result) is not np.ndarray:
                _write_lines(combine, windows, result.reshape(-1), starts, updates)
                return result
            write(combine, windows, result, starts, updates)
            return result

        return scatter

    return bind


def _write_lines(
    combine: np.ufunc | None, windows: _Windows, flat: Arg, starts: Sequence[Array], updates: Array
) -> None:
    """What the other two do, to probes."""
    before, length = windows.lines()
    positions = windows.positions(starts, before)
    inside = windows.inside(starts)
    inside = inside.reshape(*inside.shape, *[1] * len(windows.shape))
    flat.scatter(combine, positions, inside, updates.reshape(*positions.shape, length))


def _write_many(
    combine: np.ufunc | None, windows: _Windows, result: Array, starts: Sequence[Array], updates: Array
) -> None:
    positions = windows.positions(starts)
    if not (inside := windows.inside(starts)).all():
        positions, updates = positions[inside], updates[inside]
    flat = result.reshape(-1)
    if combine is None:
        flat[positions.reshape(-1)] = updates.reshape(-1)
    else:
        combine.at(flat, positions.reshape(-1), updates.reshape(-1))


def _write_one(
    combine: np.ufunc | None, windows: _Windows, result: Array, starts: Sequence[Array], updates: Array
) -> None:
    if windows.inside(starts).all():
        part = result[(*windows.part(starts), ...)]
        updates = updates.reshape(part.shape)
        part[...] = updates if combine is None else combine(part, updates)


def _written(numbers: AnyArray, operand: Type, indices: Type, updates: Type) -> tuple[_Windows, list[int]]:
    """The windows that a scatter writes, and the permutation that puts the updates' batch dims before their others."""
    batching = numbers.operand_batching_dims
    window_dims: Iterator[int] = iter(numbers.update_window_dims)
    single = (*numbers.inserted_window_dims, *batching)
    sizes = [1 if d in single else updates.shape[next(window_dims)] for d in range(len(operand.shape))]
    windows = _windows(
        operand, indices, sizes, numbers.scatter_dims_to_operand_dims, batching, numbers.scatter_indices_batching_dims
    )
    batch_dims = [d for d in range(len(updates.shape)) if d not in numbers.update_window_dims]
    return windows, [*batch_dims, *numbers.update_window_dims]


for _name, _combine in {
    "scatter": None,
    "scatter-add": np.add,
    "scatter-sub": np.subtract,
    "scatter-mul": np.multiply,
    "scatter-min": np.minimum,
    "scatter-max": np.maximum,
}.items():
    primitive(_name)(_scatters(_combine))
