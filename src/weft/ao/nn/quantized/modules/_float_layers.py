"""Layers that compute with the numbers that integers stand for, and put the results on a grid again."""

from __future__ import annotations

from typing import Any, ClassVar

from weft._base.dtype import float32, int64
from weft._tensor.convert import tensor
from weft._tensor.tensor import Tensor
from weft.ao.nn.quantized._arithmetic import onto, require_quantized
from weft.ao.nn.quantized._module import grid_of, observer_of
from weft.nn._module import Module


class Requantized(Module):
    """Mixed in before a float layer: it takes a quantized tensor, and its results are on the grid of two buffers."""

    scale: Any
    zero_point: Any
    _ARGUMENTS: ClassVar[tuple[str, ...]]
    """What the constructor takes besides the grid: attributes of the float layer."""

    def _set_grid(self, scale: float | Tensor, zero_point: int | Tensor) -> None:
        self.register_buffer("scale", tensor(float(scale), dtype=float32))
        self.register_buffer("zero_point", tensor(int(zero_point), dtype=int64))

    @classmethod
    def from_float(cls, mod: Module, use_precomputed_fake_quant: bool = False) -> Module:
        """The quantized form of an observed layer."""
        del use_precomputed_fake_quant
        scale, zero_point = grid_of(observer_of(mod))
        return cls(scale=scale, zero_point=zero_point, **{name: getattr(mod, name) for name in cls._ARGUMENTS})

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    def _float(self, numbers: Tensor) -> Tensor:
        """The float layer."""
        return super().forward(numbers)

    def forward(self, input: Tensor) -> Tensor:
        """What the float layer makes of a quantized tensor, quantized."""
        require_quantized(input, type(self).__name__)
        return onto(self._float(input.dequantize()), self.scale, self.zero_point, input.dtype)
