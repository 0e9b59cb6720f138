"""The strided layout: components of any sizes, with equal numbers of dims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from weft._base.layout import strided
from weft._base.size import size_of
from weft._base.types import Kwargs
from weft._tensor.codegen import op as rows
from weft._tensor.composed import composed, encoding_of, rule
from weft._tensor.nested.encoding import (
    Nested,
    arguments_of,
    attention_of_components,
    component_at,
    is_nested,
    nested_among,
    reduces_all,
)
from weft._tensor.sparse.encoding import is_number
from weft._tensor.tensor import Results, Tensor
from weft.errors import LayoutError, ShapeError
from weft.ops._dims import pointwise, reduces
from weft.ops._table import OpDef

Sizes = tuple[int, ...]


@dataclass(eq=False, repr=False)
class Strided(Nested):
    """The values are the elements of all components, in one dim."""

    layout = strided

    sizes: tuple[Sizes, ...] = ()

    @property
    def shape(self) -> Sizes:
        """The number of components, and 0 for each of their dims that differs."""
        own = [self.common_size(d) or 0 for d in range(len(self.sizes[0]))] if self.sizes else []
        return (len(self.sizes), *own)

    def common_size(self, dim: int) -> int | None:
        """The size of a dim of all components; None if they differ."""
        sizes = {size[dim] for size in self.sizes}
        return sizes.pop() if len(sizes) == 1 else None

    def components(self) -> tuple[Tensor, ...]:
        """The tensors along the first dim."""
        pieces = self.values.split([prod(size) for size in self.sizes])
        return tuple([x.reshape(size) for x, size in zip(pieces, self.sizes, strict=True)])

    def joined(self, components: Sequence[Tensor]) -> Tensor:
        """A tensor of these components."""
        return strided_from(components)

    def derived(self, op: OpDef, args: Sequence[object], kwargs: Kwargs) -> Results:
        """A pointwise row on all values at once; others on the components, one by one."""
        tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        others = nested_among(args, kwargs)
        if any(
            not isinstance(encoding := encoding_of(x), Strided) or len(encoding.sizes) != len(self.sizes)
            for x in others
        ):
            raise ShapeError(f"{op.name}(): nested tensors must have the same layout and number of components")
        if reduces_all(op, args, kwargs):
            return getattr(rows, op.name)(self.values, *args[1:], **kwargs)
        if op.dims is reduces and not arguments_of(op, args, kwargs).get("keepdim"):
            raise LayoutError(f"{op.name}(): NestedTensor always requires keepdim=True for now.")
        if op.dims is pointwise:
            if not all(is_nested(x) or is_number(x) or not x.ndim for x in tensors):
                raise LayoutError(
                    "Expected both self and other to be nested, but got a nested self and non-nested other"
                )
            if any(encoding_of(x).sizes != self.sizes for x in others):
                raise ShapeError(
                    f"{op.name}(): for nested tensors with the strided layout, components must have the same sizes"
                )
        positional, keywords = self.row_on(op, args, kwargs)
        if op.dims is not pointwise:
            return strided_from(self.row_of_components(op, positional, keywords))
        flat = [encoding_of(x).values if is_nested(x) else x for x in positional]
        named = {name: encoding_of(x).values if is_nested(x) else x for name, x in keywords.items()}
        return self.with_values(getattr(rows, op.name)(*flat, **named))


def strided_of(values: Tensor, sizes: Sequence[Sizes]) -> Tensor:
    """A tensor of the strided layout from the elements of all components."""
    encoding = Strided(size_of((len(sizes),)), values, tuple(sizes))
    return composed(encoding)


def strided_from(components: Sequence[Tensor]) -> Tensor:
    """A tensor of the strided layout from its components, whose gradients flow to them."""
    values = rows.cat([x.reshape((-1,)) for x in components])
    return strided_of(values, [tuple(x.shape) for x in components])


def padded(x: Tensor, padding: float, output_size: Sequence[int] | None = None) -> Tensor:
    """A dense tensor in which components end with `padding` along every dim."""
    encoding = encoding_of(x)
    least = [max(n) for n in zip(*encoding.sizes, strict=True)]
    target = least if output_size is None else list(output_size)[1:]
    if (
        len(target) != len(least)
        or any(a < b for a, b in zip(target, least, strict=True))
        or (output_size is not None and output_size[0] != len(encoding.sizes))
    ):
        raise ShapeError(
            "Value in output_size is less than NestedTensor padded size. Truncation is not supported: got "
            f"{list(output_size or ())}, and the padded size is {[len(encoding.sizes), *least]}"
        )
    pieces: list[Tensor] = []
    for component in encoding.components():
        ends = [n for own, whole in zip(component.shape[::-1], target[::-1], strict=True) for n in (0, whole - own)]
        pieces.append(rows.pad(component, tuple(ends), "constant", float(padding)))
    return rows.stack(pieces)


@rule(Strided, "bmm")
def _bmm(input: Tensor, mat2: Tensor) -> Tensor:
    if not (is_nested(input) and is_nested(mat2)):
        raise LayoutError("Expected both to be nested, but got a nested self and non-nested other")
    several = zip(encoding_of(input).components(), encoding_of(mat2).components(), strict=True)
    return strided_from([rows.mm(a, b) for a, b in several])


@rule(Strided, "matmul")
def _matmul(input: Tensor, other: Tensor) -> Results:
    if not (is_nested(input) and is_nested(other)):
        raise LayoutError("Expected both to be nested, but got a nested self and non-nested other")
    return NotImplemented


rule(Strided, "select")(component_at)
rule(Strided, "attention")(attention_of_components)


@rule(Strided, "clone")
def _clone(input: Tensor) -> Tensor:
    encoding = encoding_of(input)
    return encoding.with_values(rows.clone(encoding.values))
