"""What the stubs of a model become: floats to a grid, and back."""

from __future__ import annotations

from weft._base.dtype import DType, int64
from weft._base.types import Kwargs
from weft._tensor.composite.quantized import quantize_per_tensor
from weft._tensor.convert import tensor
from weft._tensor.tensor import Tensor
from weft.ao.nn.quantized._module import grid_of, observer_of
from weft.nn._module import Module


class Quantize(Module):
    """Puts floats on a grid."""

    scale: Tensor
    zero_point: Tensor

    def __init__(self, scale: float, zero_point: int, dtype: DType, factory_kwargs: Kwargs | None = None) -> None:
        super().__init__()
        options: Kwargs = factory_kwargs or {}
        of_integers: Kwargs = {**options, "dtype": int64}
        self.register_buffer("scale", tensor([scale], **options))
        self.register_buffer("zero_point", tensor([zero_point], **of_integers))
        self.dtype = dtype

    def forward(self, X: Tensor) -> Tensor:
        """Floats to a quantized tensor of the same size."""
        return quantize_per_tensor(X, self.scale, self.zero_point, self.dtype)

    @staticmethod
    def from_float(mod: Module, use_precomputed_fake_quant: bool = False) -> Module:
        """What an observed `QuantStub` becomes."""
        del use_precomputed_fake_quant
        observer = observer_of(mod)
        return Quantize(*grid_of(observer), observer.dtype)

    def extra_repr(self) -> str:
        """The grid."""
        return f"scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}"


class DeQuantize(Module):
    """Returns the floats of a quantized tensor."""

    def forward(self, Xq: Tensor) -> Tensor:
        """A quantized tensor to floats of the same size."""
        return Xq.dequantize()

    @staticmethod
    def from_float(mod: Module, use_precomputed_fake_quant: bool = False) -> Module:
        """What a `DeQuantStub` becomes."""
        del mod, use_precomputed_fake_quant
        return DeQuantize()
