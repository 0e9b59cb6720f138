"""Plans for `x[index]`: basic view steps, followed by at most one advanced step."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from weft._base.guards import LIST, SLICE, TUPLE
from weft._base.limits import INT64
from weft._base.state import ambient
from weft._base.types import Arg, Kwargs
from weft._lazy.call import ONE
from weft._lazy.infer import Call, call_of
from weft._lazy.native import native
from weft._tensor.arguments import scalar_value
from weft._tensor.base import PathStep
from weft._tensor.overriding import require_not_overridden
from weft.errors import ArgumentError, IndexRangeError, IntegerRangeError, ValueRangeError
from weft.ops._kinds import Kind
from weft.ops._table import TABLE

if TYPE_CHECKING:
    from weft._tensor.tensor import Tensor

Make = Callable[[Arg], "Tensor"]  # lists, NumPy arrays and tensors -> tensors
Nonzero = Callable[["Tensor"], Sequence["Tensor"]]  # bool tensor of n dims -> n integer vectors

_MOST_ITEMS_OF_A_TUPLE = 32  # as in PyTorch and NumPy, longer lists are always index tensors
_INTEGERS = ("int64", "int32")
_MASKS = ("bool", "uint8")
_TRUTHS: tuple[type, ...] = (bool, np.bool_)
_IN_TUPLES: tuple[type, ...] = (slice, list, tuple, range)


@dataclass(frozen=True, slots=True)
class ViewStep:
    """One call of a view row: `row(x, **static, **scalars)`; scalars are inputs of the program."""

    row: str
    static: Kwargs
    scalars: Kwargs

    def applied(self) -> PathStep:
        """The step as it stands in the path of a view."""
        row = TABLE[self.row]
        call = call_of(row, (ONE, *[self.static.get(param.name, ONE) for param in row.params[1:]]))
        return call, tuple([scalar_value(x, name, self.row) for name, x in self.scalars.items()])


def step_call(row: str, *static: int) -> Call:
    """The call of a view row with these static arguments, in their order; its scalars are inputs."""
    rest = iter(static)
    params = TABLE[row].params[1:]
    return call_of(TABLE[row], (ONE, *[ONE if p.kind is Kind.SCALAR else next(rest) for p in params]))


if native is not None:
    native.bind(step_call=step_call)


@dataclass(slots=True)
class IndexPlan:
    """View steps in order, then `index(x, indices, spec)` if there are indices.

    `spec` has the indexed dim of each of `indices`, counted after the steps. `masks` are the masks from which some of
    the indices were made, `mask_dims` the first dim of each, counted likewise.
    """

    steps: list[ViewStep]
    indices: list[Tensor]
    spec: tuple[int, ...]
    masks: list[Tensor]
    mask_dims: list[int]


def normalise_index(
    index: object, shape: Sequence[int], make: Make, nonzero: Nonzero, *, all_slices: bool = False
) -> IndexPlan:
    """The plan for indexing a tensor of this shape.

    With `all_slices`, a slice with an end is a step even if it takes the whole dim, as it does not for other sizes.

    Raises `IndexError` for invalid indices and for indices out of range, `ValueError` for steps below one.
    """
    items = _items(index)
    resolved = [make(_typed(item)) if _is_sequence(item) else item for item in items]
    count = sum(_dims_taken(item) for item in resolved)
    if count > len(shape):
        raise IndexRangeError(_too_many(len(shape), index))
    walk = _Walk(shape, make, nonzero, all_slices)
    for item in resolved:
        if item is Ellipsis:
            walk.skip(len(shape) - count)
            count = len(shape)  # a second ellipsis stands for no dims
        else:
            walk.take(item)
    walk.plan.spec = tuple(walk.spec)
    return walk.plan


def _too_many(ndim: int, index: object) -> str:
    if not ndim and isinstance(index, slice):
        return "slice() cannot be applied to a 0-dim tensor."
    if not ndim and isinstance(index, int):
        return (
            "invalid index of a 0-dim tensor. Use `tensor.item()` in Python "
            "or `tensor.item<T>()` in C++ to convert a 0-dim tensor to a number"
        )
    return f"too many indices for tensor of dimension {ndim}"


def _items(index: Arg) -> list[Arg]:
    """The items of an index; short lists that contain more than numbers count as tuples."""
    if isinstance(index, TUPLE):
        return list(index)
    if isinstance(index, LIST) and len(index) < _MOST_ITEMS_OF_A_TUPLE and any(map(_marks_a_tuple, index)):
        return list(index)
    return [index]


def _marks_a_tuple(item: Arg) -> bool:
    special = item is None or item is Ellipsis or isinstance(item, _IN_TUPLES)
    return special or (hasattr(item, "shape") and not isinstance(item, np.generic))


def _is_sequence(item: object) -> bool:
    """Whether an item is, or becomes, an index tensor. NumPy's scalars count as Python's."""
    if isinstance(item, np.generic):
        return False
    return isinstance(item, (list, tuple, range)) or hasattr(item, "shape")


def _typed(item: Arg) -> Arg:
    """An empty sequence as an integer array, since it has no elements to give its type."""
    return item if hasattr(item, "shape") or len(item) else np.zeros(0, np.int64)


def _dims_taken(item: Arg) -> int:
    if item is None or item is Ellipsis or isinstance(item, (bool, np.bool_)):
        return 0
    return len(item.shape) if _is_mask(item) else 1


def _is_mask(item: Arg) -> bool:
    return hasattr(item, "shape") and not isinstance(item, np.generic) and item.dtype.name in _MASKS


def _position_at_hand(index: Tensor) -> int | None:
    """The number of an index tensor without dims if it is on the host, and nobody watches what depends on it."""
    value = index._read()
    if value.aval.owner is not None or value.on_host is None or ambient().watched:
        return None
    return int(value.on_host)


class _Walk:
    """Processes the items of an index and makes the plan; `dim` is counted in the result of the steps."""

    def __init__(self, shape: Sequence[int], make: Make, nonzero: Nonzero, all_slices: bool) -> None:
        self.all_slices = all_slices
        self.sizes = list(shape)  # sizes of the result of the steps so far
        self.make = make
        self.nonzero = nonzero
        self.plan = IndexPlan([], [], (), [], [])
        self.spec: list[int] = []
        self.source = 0  # dim of the indexed tensor, for messages
        self.dim = 0

    def skip(self, count: int) -> None:
        self.source += count
        self.dim += count

    def take(self, item: Arg) -> None:
        if item is None:
            self._unsqueeze()
            self.dim += 1
        elif isinstance(item, SLICE):
            self._slice(item)
        elif isinstance(item, _TRUTHS):
            self._truth(bool(item))
        elif hasattr(item, "shape") and not isinstance(item, np.generic):
            self._tensor(item)
        else:
            self._select(item)

    def _step(self, row: str, static: Kwargs, scalars: Kwargs) -> None:
        self.plan.steps.append(ViewStep(row, static, scalars))

    def _index(self, tensor: Tensor) -> None:
        self.plan.indices.append(tensor)
        self.spec.append(self.dim)
        self.dim += 1

    def _unsqueeze(self) -> None:
        self._step("unsqueeze", {"dim": self.dim}, {})
        self.sizes.insert(self.dim, 1)

    def _pick(self, row: str, index: object) -> None:
        self._step(row, {"dim": self.dim}, {"index": index})
        del self.sizes[self.dim]
        self.source += 1

    def _select(self, item: Arg) -> None:
        try:
            index = operator.index(item)
        except TypeError:
            if isinstance(item, str):
                raise ArgumentError("an index must be no str: new(): invalid data type 'str'") from None
            require_not_overridden(item)
            raise IndexRangeError(
                "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables "
                f"are valid indices (got {type(item).__name__})"
            ) from None
        if index not in INT64:
            raise IntegerRangeError(f"Overflow when unpacking long long: the index {index}")
        size = self.sizes[self.dim]
        if not -size <= index < size:
            raise IndexRangeError(f"index {index} is out of bounds for dimension {self.source} with size {size}")
        self._pick("select", index % size)

    def _slice(self, item: slice) -> None:
        size = self.sizes[self.dim]
        try:
            start, stop, step = item.indices(size)
        except TypeError:
            text = "slice indices must be integers or None or have an __index__ method"
            raise ArgumentError(text) from None
        except ValueError:
            raise ValueRangeError("slice step cannot be zero") from None
        if step < 1:
            raise ValueRangeError("step must be greater than zero")
        length = len(range(start, stop, step))
        if (length, step) != (size, 1) or (self.all_slices and item.stop is not None):
            static = {"dim": self.dim, "length": length, "step": step}
            self._step("slice_dim", static, {"start": min(start, size)})
            self.sizes[self.dim] = length
        self.skip(1)

    def _truth(self, value: bool) -> None:
        """A single bool as an index: a new dim of size one or zero."""
        self._unsqueeze()
        self._index(self.make(np.zeros(int(value), np.int64)))

    def _tensor(self, tensor: Tensor) -> None:
        if _is_mask(tensor):
            self._mask(tensor)
        elif tensor.dtype.name not in _INTEGERS:
            raise IndexRangeError("tensors used as indices must be long, int, byte or bool tensors")
        elif len(tensor.shape):
            self._index(tensor)
            self.source += 1
        else:
            position = _position_at_hand(tensor)
            if position is None:
                self._pick("select_at", tensor)
            else:
                self._select(position)

    def _mask(self, mask: Arg) -> None:
        """Replace a mask by the coordinates of its true elements: an integer vector for each of its dims."""
        covered = self.sizes[self.dim : self.dim + len(mask.shape)]
        for offset, (length, size) in enumerate(zip(mask.shape, covered, strict=True)):
            if length != size:
                raise IndexRangeError(
                    f"The shape of the mask {list(mask.shape)} at index {offset} does not match "
                    f"the shape of the indexed tensor {self.sizes} at index {self.dim + offset}"
                )
        if not len(mask.shape):
            self._truth(bool(mask))
            return
        self.plan.masks.append(mask)
        self.plan.mask_dims.append(self.dim)
        for places in self.nonzero(mask):
            self._index(places)
        self.source += len(mask.shape)
