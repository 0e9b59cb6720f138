"""Modules for operators without weights, so that their results can be observed, and put on a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from weft._base.dtype import float64, from_numpy, int32, int64
from weft._base.limits import iinfo
from weft._base.types import PyTree
from weft._tensor.codegen import op
from weft._tensor.convert import tensor
from weft._tensor.quantized.encoding import Quantized, grid_tensor, quantized_encoding
from weft._tensor.tensor import Tensor
from weft.ao.nn.quantized._arithmetic import onto, require_quantized
from weft.ao.nn.quantized._module import OnGrid, grid_of, observer_of, require_type
from weft.errors import ModuleError
from weft.fx._wrapping import as_one_node
from weft.nn import functional as F
from weft.nn._linear import Identity
from weft.nn._lookup import AnyModule
from weft.nn._module import Module


class _Functional(Module):
    """The operators. Results pass through `_observed`."""

    def forward(self, x: PyTree) -> NoReturn:
        """Raises: call one of the operators."""
        del x
        raise ModuleError(
            f"{type(self).__name__} is not intended to use the 'forward'. Please use the underlying operation, such as "
            "add(x, y)"
        )

    def _observed(self, x: Tensor) -> Tensor:
        return x

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """x + y."""
        return self._observed(op.add(x, y))

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """x + y for a number y, which is not observed."""
        return op.add(x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """x y, element by element."""
        return self._observed(op.mul(x, y))

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        """x y for a number y, which is not observed."""
        return op.mul(x, y)

    def cat(self, x: Sequence[Tensor], dim: int = 0) -> Tensor:
        """Tensors joined along a dim."""
        return self._observed(op.cat(list(x), dim))

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """The positive part of x + y."""
        return self._observed(F.relu(op.add(x, y)))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """The product of matrices."""
        return self._observed(op.matmul(x, y))


class FloatFunctional(_Functional):
    """Operators on floats, of which `prepare` observes the results, and `convert` makes a `QFunctional`."""

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process: AnyModule = Identity()

    def _observed(self, x: Tensor) -> Tensor:
        return self.activation_post_process(x)


class FXFloatFunctional(_Functional):
    """The same operators, without an observer."""


class QFunctional(_Functional, OnGrid):
    """The same operators on quantized tensors, with results on the grid of `scale` and `zero_point`.

    A sum with, or a product by a number changes the grid instead of the integers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0
        self.zero_point = 0
        self.activation_post_process: AnyModule = Identity()

    def _get_name(self) -> str:
        return "QFunctional"

    def extra_repr(self) -> str:
        """The grid."""
        return f"scale={self.scale}, zero_point={self.zero_point}"

    def _onto(self, like: Tensor, numbers: Tensor) -> Tensor:
        return self.activation_post_process(onto(numbers, self.scale, self.zero_point, like.dtype))

    def _numbers(self, name: str, *xs: Tensor) -> list[Tensor]:
        for x in xs:
            require_quantized(x, name)
        return [x.dequantize() for x in xs]

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """x + y."""
        return self._onto(x, op.add(*self._numbers("add", x, y)))

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """x y, element by element."""
        return self._onto(x, op.mul(*self._numbers("mul", x, y)))

    def cat(self, x: Sequence[Tensor], dim: int = 0) -> Tensor:
        """Tensors joined along a dim."""
        return self._onto(x[0], op.cat(self._numbers("cat", *x), dim))

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """The positive part of x + y."""
        return self._onto(x, F.relu(op.add(*self._numbers("add_relu", x, y))))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """The product of matrices."""
        return self._onto(x, op.matmul(*self._numbers("matmul", x, y)))

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """x + y for a number y, on a grid of the same scale; not observed, as it is not on floats."""
        return add_scalar(x, y)

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        """x y for a number y, on the grid that has the same integers, mirrored if y is negative; not observed."""
        return mul_scalar(x, y)

    @classmethod
    def from_float(cls, mod: AnyModule, use_precomputed_fake_quant: bool = False) -> AnyModule:
        """The quantized encoding of an observed `FloatFunctional`."""
        del use_precomputed_fake_quant
        require_type(mod, FloatFunctional, cls)
        result = cls()
        result.scale, result.zero_point = grid_of(observer_of(mod))
        return result


def _on(encoding: Quantized, values: Tensor, scale: float, zero_point: int) -> Tensor:
    """Integers on another grid of the same type."""
    on_grid = [tensor(x, dtype=kind, device=values.device) for x, kind in ((scale, float64), (zero_point, int64))]
    return grid_tensor(values, on_grid[0], on_grid[1], None, encoding.element)


@as_one_node
def add_scalar(x: Tensor, y: float) -> Tensor:
    """A quantized tensor plus a number: the zero point moves; if it leaves the type's range, the grid becomes wider."""
    require_quantized(x, "add_scalar")
    encoding = quantized_encoding(x, "add_scalar").uniform("add_scalar")
    levels = iinfo(from_numpy(encoding.element.numpy))
    scale, zero = encoding.scale.item(), encoding.zero_point.item()
    moved = zero - round(y / scale)
    if levels.min <= moved <= levels.max:
        return _on(encoding, encoding.values, scale, moved)
    end, span = (levels.min, levels.max - moved) if moved < levels.min else (levels.max, moved - levels.min)
    return onto(x.dequantize() + y, scale * span / (levels.max - levels.min), end, encoding.element)


@as_one_node
def mul_scalar(x: Tensor, y: float) -> Tensor:
    """A quantized tensor times a number: the scale changes, and the integers are mirrored if it is negative."""
    require_quantized(x, "mul_scalar")
    encoding = quantized_encoding(x, "mul_scalar").uniform("mul_scalar")
    levels = iinfo(from_numpy(encoding.element.numpy))
    scale, zero, both = encoding.scale.item(), encoding.zero_point.item(), levels.min + levels.max
    if y > 0:
        return _on(encoding, encoding.values, scale * y, zero)
    if y < 0:
        mirrored = (both - encoding.values.to(int32)).to(encoding.values.dtype)
        return _on(encoding, mirrored, scale * -y, both - zero)
    return _on(encoding, op.zeros(tuple(x.shape), dtype=encoding.values.dtype, device=x.device), 1.0, 0)
