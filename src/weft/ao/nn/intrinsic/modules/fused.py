"""Layers that `fuse_modules` has put together, before they are quantized: sequences with a name of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.errors import PreconditionError
from weft.nn._activation import LeakyReLU, ReLU, Tanh
from weft.nn._containers import Sequential
from weft.nn._conv import Conv1d, Conv2d, Conv3d
from weft.nn._linear import Linear
from weft.nn._norm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from weft.nn.utils.parametrize import type_before_parametrizations

if TYPE_CHECKING:
    from weft.nn._module import Module


class _FusedModule(Sequential):
    """The base of fused layers, of the types in `_PARTS`."""

    _PARTS: tuple[type, ...] = ()

    def __init__(self, *layers: Module) -> None:
        types = tuple(map(type_before_parametrizations, layers))
        if self._PARTS and types != self._PARTS:
            expected, got = (", ".join(kind.__name__ for kind in kinds) for kinds in (self._PARTS, types))
            raise PreconditionError(
                f"Incorrect types for input modules of {type(self).__name__}: expected {expected}, but got {got}"
            )
        super().__init__(*layers)


FusedModule = _FusedModule  # for other modules: PyTorch has it as a private class


def _fused(name: str, *parts: type) -> type[_FusedModule]:
    names = ", ".join(kind.__name__ for kind in parts)
    return type(name, (_FusedModule,), {"_PARTS": parts, "__doc__": f"{names}.", "__module__": __name__})


ConvReLU1d = _fused("ConvReLU1d", Conv1d, ReLU)
ConvReLU2d = _fused("ConvReLU2d", Conv2d, ReLU)
ConvReLU3d = _fused("ConvReLU3d", Conv3d, ReLU)
LinearReLU = _fused("LinearReLU", Linear, ReLU)
ConvBn1d = _fused("ConvBn1d", Conv1d, BatchNorm1d)
ConvBn2d = _fused("ConvBn2d", Conv2d, BatchNorm2d)
ConvBn3d = _fused("ConvBn3d", Conv3d, BatchNorm3d)
ConvBnReLU1d = _fused("ConvBnReLU1d", Conv1d, BatchNorm1d, ReLU)
ConvBnReLU2d = _fused("ConvBnReLU2d", Conv2d, BatchNorm2d, ReLU)
ConvBnReLU3d = _fused("ConvBnReLU3d", Conv3d, BatchNorm3d, ReLU)
BNReLU2d = _fused("BNReLU2d", BatchNorm2d, ReLU)
BNReLU3d = _fused("BNReLU3d", BatchNorm3d, ReLU)
LinearBn1d = _fused("LinearBn1d", Linear, BatchNorm1d)
LinearLeakyReLU = _fused("LinearLeakyReLU", Linear, LeakyReLU)
LinearTanh = _fused("LinearTanh", Linear, Tanh)
