"""Gradients of convolutions with respect to inputs and weights, which only need the shape of the one asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft._base.types import Arg
from weft._tensor.codegen import op
from weft._tensor.gradients import grad
from weft._tensor.tensor import Tensor
from weft.autograd import enable_grad, is_grad_enabled
from weft.nn import functional

Ints = int | Sequence[int]


def _zeros(size: Sequence[int], like: Tensor) -> Tensor:
    return op.zeros(tuple(size), dtype=like.dtype, device=like.device).requires_grad_()


def _gradient(
    convolution: Callable[..., Tensor], of: Tensor, input: Tensor, weight: Tensor, grad_output: Tensor, *options: Arg
) -> Tensor:
    keeps = is_grad_enabled()
    with enable_grad():
        output = convolution(input, weight, None, *options)
    (result,) = grad(output, of, grad_output, create_graph=keeps, materialize_grads=True)
    assert result is not None, "it is materialized"
    return result


def _of_convolution(convolution: Callable[..., Tensor]) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """The gradients with respect to the input, and with respect to the weight."""

    def by_input(
        input_size: Sequence[int],
        weight: Tensor,
        grad_output: Tensor,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
    ) -> Tensor:
        input = _zeros(input_size, weight)
        return _gradient(convolution, input, input, weight, grad_output, stride, padding, dilation, groups)

    def by_weight(
        input: Tensor,
        weight_size: Sequence[int],
        grad_output: Tensor,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
    ) -> Tensor:
        weight = _zeros(weight_size, input)
        return _gradient(convolution, weight, input, weight, grad_output, stride, padding, dilation, groups)

    name = convolution.__name__
    for what, gradient in (("input", by_input), ("weight", by_weight)):
        gradient.__name__ = gradient.__qualname__ = f"{name}_{what}"
        gradient.__doc__ = f"The gradient of `{name}` with respect to its {what}, of size `{what}_size`."
    return by_input, by_weight


conv1d_input, conv1d_weight = _of_convolution(functional.conv1d)
conv2d_input, conv2d_weight = _of_convolution(functional.conv2d)
conv3d_input, conv3d_weight = _of_convolution(functional.conv3d)
