"""The class of quantized tensors, with the methods that other tensors do not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn, Self

from weft._base.layout import layout, strided
from weft._base.types import Arg
from weft._tensor.composed import ComposedTensor
from weft._tensor.display import body, place, with_suffixes
from weft._tensor.quantized.encoding import Quantized, quantized_encoding
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, LayoutError, UnsupportedCallError
from weft.ops._kinds import Scalar


class QuantizedTensor(ComposedTensor):
    """A tensor of integers on a grid. It has no gradient, and few operators; `dequantize()` gives the numbers."""

    @property
    def _grid(self) -> Quantized:
        return quantized_encoding(self, "qscheme")

    @property
    def layout(self) -> layout:
        """`strided`, as PyTorch says."""
        return strided

    @property
    def is_quantized(self) -> bool:
        """True."""
        return True

    def _set_requires_grad(self, requires_grad: object, refusal: str) -> Self:
        if requires_grad:
            raise DTypeError(
                refusal or "only Tensors of floating point dtype can require gradients; use x.dequantize()"
            )
        return self

    @property
    def grad_fn(self) -> None:
        """None: integers have no derivative."""
        return None

    # --- numbers ------------------------------------------------------------------------------------------------

    def item(self) -> Scalar:
        """The number of a tensor with one element."""
        if self.numel() != 1:
            raise LayoutError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
        return self._grid.whole_array().item()

    def tolist(self) -> NoReturn:
        """Raises, as in PyTorch: say which elements are wanted."""
        raise DTypeError("a quantized tensor has two lists: use x.dequantize().tolist(), or x.int_repr().tolist()")

    def numpy(self, *, force: bool = False) -> NoReturn:
        """Raises, as in PyTorch: say which elements are wanted."""
        del force
        raise ArgumentError(
            f"Got unsupported ScalarType {self.dtype}: use x.dequantize().numpy(), or x.int_repr().numpy()"
        )

    def _read_concrete(self, *, decides: bool = False) -> Arg:
        return self._grid.whole_array()._read_concrete(decides=decides)

    # --- what has another meaning than for arrays -----------------------------------------------------------------

    def contiguous(self, memory_format: object = None) -> Tensor:
        """The tensor itself: elements are row-major."""
        del memory_format
        return self

    def is_contiguous(self, memory_format: object = None) -> bool:
        """True: elements are row-major."""
        del memory_format
        return True

    def stride(self, dim: int | None = None) -> Arg:
        """How many elements apart neighbours along each dim are."""
        return self._grid.values.stride() if dim is None else self._grid.values.stride(dim)

    def untyped_storage(self) -> NoReturn:
        """Raises: ask the integers."""
        raise UnsupportedCallError("a quantized tensor has no storage of its own; use x.int_repr().untyped_storage()")

    def __iter__(self) -> Iterator[Tensor]:
        return (self[at] for at in range(self.shape[0]))

    def __len__(self) -> int:
        return len(self._grid.values)

    def __repr__(self) -> str:
        numbers = self._grid.whole_array()
        lead = "tensor("
        text = lead + (body(numbers, len(lead)) if numbers.numel() else "[]")
        return with_suffixes(text, self._suffixes(), len(lead))

    def _suffixes(self) -> Iterator[str]:
        encoding = self._grid
        yield from place(self)
        yield f"size={tuple(self.shape)}"
        yield f"dtype={self.dtype}"
        yield f"quantization_scheme={encoding.scheme!r}"
        if encoding.axis is None:
            yield f"scale={encoding.scale.item()}"
            yield f"zero_point={int(encoding.zero_point.item())}"
        else:
            yield f"scale={encoding.scale!r}"
            yield f"zero_point={encoding.zero_point!r}"
            yield f"axis={encoding.axis}"


Quantized.tensor_type = QuantizedTensor
