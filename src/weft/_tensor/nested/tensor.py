"""The class of nested tensors, with the methods that other tensors do not have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NoReturn

from weft._base.guards import is_tuple
from weft._base.size import Size
from weft._base.types import Arg
from weft._tensor.arguments import integer
from weft._tensor.codegen import op
from weft._tensor.composed import ComposedTensor
from weft._tensor.display import place_in_graph
from weft._tensor.nested import jagged, strided
from weft._tensor.nested.encoding import Nested
from weft._tensor.nested.jagged import Jagged
from weft._tensor.nested.strided import Strided
from weft._tensor.tensor import Tensor
from weft.errors import IndexRangeError, LacksAttributeError, LayoutError
from weft.ops._dims import wrap_dim


class NestedTensor(ComposedTensor):
    """Several tensors of different sizes, its components, as one tensor with one more dim."""

    @property
    def is_nested(self) -> bool:
        """True."""
        return True

    @property
    def shape(self) -> Size:
        """Sizes of the dims; that in which components differ is a symbol. `RuntimeError` for the strided layout."""
        if isinstance(self._encoding, Strided):
            raise LayoutError(
                "Internal error: NestedTensorImpl doesn't support sizes. Please file an issue. Use x.size(dim), or the "
                "sizes of x.unbind()"
            )
        return self._encoding.size

    def size(self, dim: int | str | None = None) -> Arg:
        """Sizes of the dims, or of one of them."""
        if dim is None or isinstance(dim, str):
            return self.shape
        encoding = self._encoding
        at = wrap_dim(dim, len(encoding.shape))
        if isinstance(encoding, Strided) and at:
            size = encoding.common_size(at - 1)
            if size is None:
                raise LayoutError(f"Given dimension {at} is irregular and does not have a size.")
            return size
        return encoding.size[at]

    def numel(self) -> int:
        """The number of elements of all components."""
        encoding = self._encoding
        if isinstance(encoding, Jagged) and encoding.lengths is not None:
            return sum(x.numel() for x in encoding.components())
        return encoding.values.numel()

    nelement = numel

    def stride(self, dim: int | None = None) -> NoReturn:
        """Raises: ask the components."""
        raise self._encoding.refusal("stride")

    # --- components ---------------------------------------------------------------------------------------------

    def unbind(self, dim: int | str = 0) -> tuple[Tensor, ...]:
        """The components, with gradients. Waits for the offsets."""
        encoding = self._encoding
        assert isinstance(encoding, Nested), "only such have this class"
        if wrap_dim(integer(dim, "dim", "unbind"), len(encoding.shape)):
            raise LayoutError(
                f"unbind(): NestedTensor can only be unbound along dimension 0, got dimension {dim} instead."
            )
        return encoding.components()

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.unbind())

    def __getitem__(self, index: object) -> Tensor:
        """A component, or a part of one; after `:`, the same part of all, with all of the ragged dim."""
        first, *rest = index if is_tuple(index) else (index,)
        if first is Ellipsis:
            first, rest = slice(None), [Ellipsis, *rest]
        encoding = self._encoding
        assert isinstance(encoding, Nested), "only such have this class"
        if isinstance(first, int):
            if not -len(self) <= first < len(self):
                raise IndexRangeError(f"index {first} is out of bounds for dimension 0 with size {len(self)}")
            component = encoding.components()[first]
            return component[(*rest,)] if rest else component
        if first != slice(None):
            raise LayoutError(f"slice(): not supported for NestedTensor on dim=0; {encoding.advice}")
        parts = [x[(*rest,)] for x in encoding.components()]
        if isinstance(encoding, Strided):
            return strided.strided_from(parts)
        assert isinstance(encoding, Jagged), "there are two layouts"
        before = [x.shape[encoding.ragged - 1] for x in encoding.components()]
        if any(x.ndim < encoding.ragged for x in parts) or [x.shape[encoding.ragged - 1] for x in parts] != before:
            raise encoding.refusal("slice", " along the ragged dim")
        return encoding.joined(parts)

    def __len__(self) -> int:
        return self._encoding.shape[0]

    def values(self) -> Tensor:
        """The elements of all components, with gradients."""
        return op.alias(self._encoding.values)

    def _jagged(self, name: str) -> Jagged:
        encoding = self._encoding
        if not isinstance(encoding, Jagged):
            raise LacksAttributeError(
                f"'Tensor' object has no attribute '{name}': only nested tensors with layout torch.jagged have"
            )
        return encoding

    def offsets(self) -> Tensor:
        """Where each component begins in the values, and the last one ends."""
        return self._jagged("offsets").offsets

    def lengths(self) -> Tensor | None:
        """The sizes of components if there are gaps between them, else None."""
        return self._jagged("lengths").lengths

    @property
    def _ragged_idx(self) -> int:
        return self._jagged("_ragged_idx").ragged

    def to_padded_tensor(self, padding: float, output_size: Sequence[int] | None = None) -> Tensor:
        """A dense tensor with the components, which end with `padding`."""
        function = strided.padded if isinstance(self._encoding, Strided) else jagged.padded
        return function(self, padding, output_size)

    def is_contiguous(self, memory_format: object = None) -> bool:
        """Whether components lie one after another, without gaps."""
        del memory_format
        encoding = self._encoding
        return not isinstance(encoding, Jagged) or (encoding.lengths is None and encoding.ragged == 1)

    def contiguous(self, memory_format: object = None) -> Tensor:
        """The same components without gaps."""
        del memory_format
        encoding = self._encoding
        if isinstance(encoding, Jagged) and encoding.ragged != 1:
            return op.clone(self)
        return jagged.contiguous(self) if isinstance(encoding, Jagged) else self

    def __repr__(self) -> str:
        encoding = self._encoding
        if isinstance(encoding, Jagged):
            size = ", ".join(map(str, encoding.size))
            facts = [f"size=({size})", f"offsets={encoding.offsets.detach()!r}", *place_in_graph(self)]
            return f"NestedTensor({', '.join(facts)}, contiguous={self.is_contiguous()})"
        texts = [repr(x.detach()) for x in self.unbind()]
        lines = ",\n".join("\n".join(f"  {line}" for line in text.split("\n")) for text in texts)
        suffixes = "".join(f", {text}" for text in place_in_graph(self))
        return f"nested_tensor([\n{lines}\n]{suffixes})"


Nested.tensor_type = NestedTensor
