"""The jagged layout: components that differ in one size lie one after another, along that dim."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from weft._base.guards import is_list, is_tuple
from weft._base.layout import jagged
from weft._base.size import size_of
from weft._base.types import Arg, Kwargs, SavedState
from weft._tensor.codegen import op as rows
from weft._tensor.composed import composed, encoding_of, rule
from weft._tensor.nested.encoding import (
    Nested,
    attention_of_components,
    component_at,
    is_nested,
    nested_among,
    reduces_all,
)
from weft._tensor.sparse.coo import on_device, summed_at
from weft._tensor.tensor import Results, Tensor
from weft.errors import LayoutError, ShapeError, UnsupportedShapeError
from weft.ops._dims import along, pointwise, reduces, shared_letter
from weft.ops._kinds import Kind
from weft.ops._table import OpDef


class RaggedSize:
    """The size of a dim in which components differ: equal only to that of tensors with the same offsets."""

    _numbers = count(1)

    def __init__(self) -> None:
        self._name = f"j{next(RaggedSize._numbers)}"

    def __repr__(self) -> str:
        return self._name


# no cell: a cache, keyed by all that its entries depend on
_sizes: dict[int, tuple[weakref.ref[Tensor], RaggedSize]] = {}


def ragged_size_of(offsets: Tensor) -> RaggedSize:
    """The size that belongs to an offsets tensor, as long as that lives."""
    key = id(offsets)
    if key not in _sizes:
        _sizes[key] = weakref.ref(offsets, lambda _: _sizes.pop(key, None)), RaggedSize()
    return _sizes[key][1]


@dataclass(eq=False, repr=False)
class Jagged(Nested):
    """Component `n` is `values[offsets[n] : offsets[n + 1]]`, or as many from `offsets[n]` on as `lengths` says.

    offsets  (components + 1), or (components) with lengths
    ragged   the dim in which components differ, counted from the first dim, which is that of components
    lengths  the sizes of components, if there are gaps between them; else None
    """

    layout = jagged

    offsets: Tensor
    ragged: int = 1
    lengths: Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes, 0 for that in which components differ."""
        return tuple([0 if isinstance(n, RaggedSize) else n for n in self.size])

    def facts(self) -> SavedState:
        """What else is to be known, by name."""
        return {"ragged": self.ragged}

    @classmethod
    def restored(cls, facts: SavedState, parts: dict[str, Tensor]) -> Jagged:
        """The encoding with these facts and parts."""
        return encoding_of(jagged_of(parts["values"], parts["offsets"], facts["ragged"], parts.get("lengths")))

    def spans(self) -> np.ndarray:
        """Where each component begins and ends: (components, 2). Waits for offsets and lengths."""
        offsets = self.offsets.detach()._host()
        ends = offsets[1:] if self.lengths is None else offsets[: self.shape[0]] + self.lengths.detach()._host()
        return np.stack([offsets[: self.shape[0]], ends], 1)

    def components(self) -> tuple[Tensor, ...]:
        """The tensors along the first dim."""
        dim = self.ragged - 1
        return tuple([self.values.narrow(dim, int(a), int(b - a)) for a, b in self.spans()])

    def owners(self) -> Tensor:
        """The component of each place along the ragged dim of the values."""
        total = self.values.shape[self.ragged - 1]
        own = np.zeros(total, np.int64)
        for at, (a, b) in enumerate(self.spans()):
            own[a:b] = at
        return on_device(own, self.offsets)

    def like(self, values: Tensor, ragged: int) -> Tensor:
        """A tensor with the same components in another size or order of the other dims."""
        size: list[Arg] = [self.size[0], *values.shape]
        size[ragged] = self.size[self.ragged]
        return composed(Jagged(size_of(size), values, self.offsets, ragged, self.lengths))

    def joined(self, components: Sequence[Tensor]) -> Tensor:
        """A tensor of components with the same ragged sizes."""
        if self.lengths is not None:
            return jagged_from(components, self.ragged)
        return self.like(rows.cat(list(components), self.ragged - 1), self.ragged)

    def derived(self, op: OpDef, args: Sequence[object], kwargs: Kwargs) -> Results:
        """The row on all values at once, if its rule for dims says that it treats components one by one."""
        if reduces_all(op, args, kwargs):
            values = encoding_of(contiguous(composed(self))).values
            return getattr(rows, op.name)(values, *args[1:], **kwargs)
        positional, keywords = self.row_on(op, args, kwargs)
        self._require_same_sizes(op, args, kwargs)
        on_values = [self._on_values(op, x) for x in positional]
        named = {name: self._on_values(op, x) for name, x in keywords.items()}
        at = self._place_in_result(op, on_values, named, positional, keywords)
        if at is None:
            if op.dims not in (along, reduces):
                raise self.refusal(op.name, f" that combines elements along the ragged dim {self.ragged}")
            results = self.row_of_components(op, positional, keywords)
            return self.joined(results) if op.dims is along else rows.stack(results)
        result = getattr(rows, op.name)(*on_values, **named)
        if is_tuple(result):
            return tuple([self.like(x, at + 1) for x in result])
        return self.like(result, at + 1)

    def _require_same_sizes(self, op: OpDef, args: Sequence[object], kwargs: Kwargs) -> None:
        for other in nested_among(args, kwargs):
            encoding = encoding_of(other)
            if not isinstance(encoding, Jagged) or encoding.size[encoding.ragged] is not self.size[self.ragged]:
                raise ShapeError(
                    f"cannot call binary pointwise function {op.name} with inputs of shapes {_text(self.size)} and "
                    f"{_text(encoding.size)}; components must have the same offsets tensor: make one by "
                    "nested_tensor_from_jagged(values, x.offsets())"
                )
            if (encoding.lengths is None) is not (self.lengths is None):
                raise ShapeError(f"{op.name}: one nested tensor has gaps between components; call contiguous() first")

    def _on_values(self, op: OpDef, x: Arg) -> Results:
        """An argument as it is beside values: a dense tensor with a dim for components has one row for each place."""
        if is_list(x):
            return [self._on_values(op, part) for part in x]
        if is_nested(x):
            return encoding_of(x).values
        if not isinstance(x, Tensor) or x.ndim < len(self.shape) or not (op.dims is pointwise or op.name == "matmul"):
            return x
        if op.dims is not pointwise or x.ndim > len(self.shape) or x.shape[self.ragged] != 1:
            raise UnsupportedShapeError(
                f"{op.name}(): no rule for a nested tensor of size {_text(self.size)} beside a dense one of size "
                f"{list(x.shape)}; {self.advice}"
            )
        if x.shape[0] == 1:
            return x[0]
        if x.shape[0] != self.shape[0]:
            raise ShapeError(
                f"{op.name}(): the first dims of a nested tensor of size {_text(self.size)} and of a dense one of size "
                f"{list(x.shape)} differ"
            )
        return x.squeeze(self.ragged).index_select(0, self.owners()).movedim((0,), (self.ragged - 1,))

    def _place_in_result(
        self, op: OpDef, args: Sequence[Arg], kwargs: Kwargs, nested: Sequence[Arg], named: Kwargs
    ) -> int | None:
        """Where the ragged dim is in the result of a row on values; None if the row needs the components apart."""
        assert op.dims is not None, "`row_on` has checked"
        flat: list[tuple[Tensor, bool]] = []
        static: Kwargs = {}
        pairs = zip((*args, *kwargs.values()), (*nested, *named.values()), strict=True)
        names = [p.name for p in op.params if not p.keyword_only][: len(args)] + list(kwargs)
        kinds = {p.name: p.kind for p in op.params}
        for name, (x, before) in zip(names, pairs, strict=True):
            several = x if is_list(x) else [x]
            if not all(isinstance(part, Tensor) for part in several):
                static[name] = (x,) if kinds[name] is Kind.DIMS and isinstance(x, int) else x
                continue
            originals = before if is_list(before) else [before]
            flat += [(part, part is not own) for part, own in zip(several, originals, strict=True)]
        factors = op.dims([tuple(x.shape) for x, _ in flat], static)
        letters = [dims[form_place(self, x)] for dims, (x, own) in zip(factors.ins, flat, strict=True) if own]
        letter = shared_letter(letters[0])
        for dims, (x, own) in zip(factors.ins, flat, strict=True):
            for at, other in enumerate(dims):
                if not own and shared_letter(other) == letter and x.shape[at] != 1:
                    raise ShapeError(
                        f"{op.name}(): a dense tensor of size {list(x.shape)} has another size than the ragged dim "
                        f"{self.ragged} of a nested tensor of size {_text(self.size)}"
                    )
        if letter is None or letter in factors.whole or any(shared_letter(x) != letter for x in letters):
            return None
        places = [[shared_letter(x) for x in dims] for dims in factors.outs]
        if any(letter not in dims for dims in places):
            return None
        return places[0].index(letter)


def form_place(encoding: Jagged, values: Tensor) -> int:
    """The ragged dim of values, of which others may have fewer dims in front."""
    return encoding.ragged - 1 - (encoding.values.ndim - values.ndim)


def _text(size: Sequence[object]) -> str:
    return f"({', '.join(map(str, size))})"


# --- construction -----------------------------------------------------------------------------------------------


def jagged_of(values: Tensor, offsets: Tensor, ragged: int = 1, lengths: Tensor | None = None) -> Tensor:
    """A tensor of the jagged layout, whose size belongs to the offsets tensor, or to that of lengths."""
    components = (offsets.shape[0] - 1) if lengths is None else lengths.shape[0]
    size: list[Arg] = [components, *values.shape]
    size[ragged] = ragged_size_of(offsets if lengths is None else lengths)
    return composed(Jagged(size_of(size), values, offsets, ragged, lengths))


def jagged_from(components: Sequence[Tensor], ragged: int = 1) -> Tensor:
    """A tensor of the jagged layout from its components, whose gradients flow to them."""
    sizes = np.array([x.shape[ragged - 1] for x in components], np.int64)
    offsets = on_device(np.concatenate([[0], np.cumsum(sizes)]), components[0])
    return jagged_of(rows.cat(list(components), ragged - 1), offsets, ragged)


def contiguous(x: Tensor) -> Tensor:
    """The same components without gaps between them."""
    encoding = encoding_of(x)
    return x if encoding.lengths is None else jagged_from(encoding.components(), encoding.ragged)


def padded(x: Tensor, padding: float, output_size: Sequence[int] | None = None) -> Tensor:
    """A dense tensor in which components end with `padding`; longer ones are cut. Waits for the offsets."""
    encoding: Jagged = encoding_of(x)
    spans = encoding.spans()
    longest = int((spans[:, 1] - spans[:, 0]).max(initial=0))
    size: list[int] = [encoding.shape[0], *encoding.values.shape]
    size[encoding.ragged] = longest
    target: Sequence[int] = size if output_size is None else list(output_size)
    if len(target) != len(size) or any(
        a != b for d, (a, b) in enumerate(zip(target, size, strict=False)) if d != encoding.ragged
    ):
        raise ShapeError(
            f"to_padded_tensor: output_size {list(target)} must have the sizes of the tensor, {size}, but for dim "
            f"{encoding.ragged}"
        )
    length = target[encoding.ragged]
    places = spans[:, :1] + np.arange(length)
    inside = places < spans[:, 1:]
    source = encoding.values.movedim((encoding.ragged - 1,), (0,))
    at = on_device(np.where(inside, places, 0).reshape(-1), encoding.offsets)
    picked = (
        source.index_select(0, at)
        if source.shape[0]
        else rows.zeros((at.shape[0], *source.shape[1:]), dtype=x.dtype, device=x.device)
    )
    mask = on_device(inside.reshape(-1), encoding.offsets).bool().reshape((-1, *[1] * (source.ndim - 1)))
    filled = rows.where(mask, picked, rows.full((), padding, dtype=x.dtype, device=x.device))
    return filled.reshape((encoding.shape[0], length, *source.shape[1:])).movedim((1,), (encoding.ragged,))


# --- rules ------------------------------------------------------------------------------------------------------


@rule(Jagged, "sum")
def _sum(input: Tensor, dim: object = None, keepdim: bool = False, *, dtype: object = None) -> Results:
    return _total(input, dim, keepdim, dtype, mean=False)


@rule(Jagged, "mean")
def _mean(input: Tensor, dim: object = None, keepdim: bool = False, *, dtype: object = None) -> Results:
    return _total(input, dim, keepdim, dtype, mean=True)


def _total(x: Tensor, dim: Arg, keepdim: bool, dtype: object, *, mean: bool) -> Results:
    """Sums or means over the ragged dim, or over it and that of components."""
    encoding = encoding_of(x)
    ndim = len(encoding.shape)
    dims = () if dim is None else tuple([d % ndim for d in (dim if is_tuple(dim) else (dim,))])
    if 0 in dims and encoding.ragged not in dims:
        name = "mean" if mean else "sum"
        raise UnsupportedShapeError(
            f"{name}(): reducing along the batch dimension but not the ragged dimension is not supported for nested "
            f"tensors; {encoding.advice}"
        )
    if encoding.ragged not in dims:
        return NotImplemented
    encoding = encoding_of(contiguous(x))
    function = rows.mean if mean else rows.sum
    if 0 in dims:
        result = function(encoding.values, tuple([d - 1 for d in dims if d]), keepdim, dtype=dtype)
        return result.unsqueeze(0) if keepdim else result
    total = summed_at(encoding.values.movedim((encoding.ragged - 1,), (0,)), encoding.owners(), encoding.shape[0])
    if mean:
        spans = encoding.spans()
        counts = on_device(spans[:, 1] - spans[:, 0], encoding.offsets)
        total = total / counts.reshape((-1, *[1] * (total.ndim - 1)))
    total = total.unsqueeze(1).movedim((1,), (encoding.ragged,))
    others = tuple([d for d in dims if d != encoding.ragged])
    result = function(total, others, True, dtype=dtype) if others else total
    if dtype is not None:
        result = result.to(dtype)
    if keepdim:
        return result
    return result.squeeze(dims)


rule(Jagged, "select")(component_at)
rule(Jagged, "attention")(attention_of_components)


@rule(Jagged, "slice_dim")
def _slice_dim(input: Tensor, dim: int, start: object, length: int, step: int = 1) -> Tensor:
    encoding = encoding_of(input)
    if dim % len(encoding.shape) or (length, step) != (1, 1):
        raise LayoutError(f"slice(): not supported for NestedTensor on dim={dim}; {encoding.advice}")
    return component_at(input, dim, start).unsqueeze(0)


@rule(Jagged, "clone")
def _clone(input: Tensor) -> Tensor:
    encoding = encoding_of(input)
    return encoding.like(rows.clone(encoding.values), encoding.ragged)


@rule(Jagged, "reshape", "view")
def _reshape(input: Tensor, shape: Sequence[object]) -> Tensor:
    encoding = encoding_of(input)
    same = (
        len(shape) > encoding.ragged
        and shape[0] == encoding.shape[0]
        and tuple(shape[1 : encoding.ragged]) == encoding.shape[1 : encoding.ragged]
    )
    if not same or shape[encoding.ragged] != -1:
        raise encoding.refusal("view", " that changes the dims up to the ragged one, which is given as -1")
    lead = tuple(encoding.values.shape[: encoding.ragged])
    return encoding.like(encoding.values.reshape((*lead, *shape[encoding.ragged + 1 :])), encoding.ragged)
