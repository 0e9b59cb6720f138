"""Transforms of vectors, matrices and other events with dims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft import linalg
from weft._base.limits import finfo
from weft._base.size import Size
from weft._tensor.codegen import op
from weft._tensor.composite.create import arange
from weft._tensor.tensor import Tensor
from weft.distributions import constraints
from weft.distributions._elementwise_transforms import clipped_sigmoid
from weft.distributions._transform import FixedTransform, Transform, require_dims
from weft.distributions.utils import tril_matrix_to_vec, vec_to_tril_matrix
from weft.errors import ValueRangeError
from weft.nn.functional import logsigmoid, pad, softplus

if TYPE_CHECKING:
    from weft.distributions._constraint import Constraint


class _VectorTransform(FixedTransform):
    """A transform of events with dims."""

    def forward_shape(self, shape: Size) -> Size:
        require_dims(len(shape) >= self.domain.event_dim)
        return shape

    def inverse_shape(self, shape: Size) -> Size:
        require_dims(len(shape) >= self.codomain.event_dim)
        return shape


class SoftmaxTransform(_VectorTransform):
    """`y = exp(x) / sum(exp(x))` over the last dim. The inverse gives one argument of many: `log(y)`."""

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()


class StickBreakingTransform(_VectorTransform):
    """Vectors as points of a simplex with one more element.

    The logistic function of each element is the part that it takes of what the elements before have left. Zeros become
    the centre of the simplex. See the Stan Reference Manual, "Unit simplex".
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        part = clipped_sigmoid(x - _log_rests(x))
        left = (1 - part).cumprod(-1)
        return pad(part, [0, 1], value=1) * pad(left, [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        first = y[..., :-1]
        left = (1 - first.cumsum(-1)).clamp(min=finfo(y.dtype).tiny)
        return first.log() - left.log() + _log_rests(first)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        z = x - _log_rests(x)
        return (-z + logsigmoid(z) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Size) -> Size:
        require_dims(len(shape) >= 1)
        return shape[:-1] + (shape[-1] + 1,)  # noqa: RUF005 - it remains a Size

    def inverse_shape(self, shape: Size) -> Size:
        require_dims(len(shape) >= 1)
        return shape[:-1] + (shape[-1] - 1,)  # noqa: RUF005


def _log_rests(x: Tensor) -> Tensor:
    """Logarithms of how many elements of the simplex come after each one."""
    return arange(x.shape[-1], 0, -1, dtype=x.dtype, device=x.device).log()


class CorrCholeskyTransform(_VectorTransform):
    """Vectors of `D (D - 1) / 2` numbers as Cholesky factors of correlation matrices of size D.

    Hyperbolic tangents of the numbers are the partial correlations, row by row (Stan Reference Manual, "Cholesky
    factors of correlation matrices").
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        eps = finfo(x.dtype).eps
        partial = vec_to_tril_matrix(x.tanh().clamp(min=-1 + eps, max=1 - eps), diag=-1)
        left = (1 - partial**2).sqrt().cumprod(-1)
        identity = op.eye(partial.shape[-1], dtype=x.dtype, device=x.device)
        return (partial + identity) * pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        left = pad((1 - (y * y).cumsum(-1))[..., :-1], [1, 0], value=1)
        return (tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()).atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = tril_matrix_to_vec(1 - (y * y).cumsum(-1), diag=-2)
        tanh = -2 * (x + softplus(-2 * x) - math.log(2)).sum(-1)
        return left.log().sum(-1) / 2 + tanh

    def forward_shape(self, shape: Size) -> Size:
        require_dims(len(shape) >= 1)
        count = shape[-1]
        size = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if size * (size - 1) // 2 != count:
            raise ValueRangeError("Input is not a flattened lower-diagonal number")
        return shape[:-1] + (size, size)  # noqa: RUF005

    def inverse_shape(self, shape: Size) -> Size:
        require_dims(len(shape) >= 2)
        if shape[-2] != shape[-1]:
            raise ValueRangeError("Input is not square")
        size = shape[-1]
        return shape[:-2] + (size * (size - 1) // 2,)  # noqa: RUF005


class LowerCholeskyTransform(_VectorTransform):
    """The lower triangles of matrices, with exponentials on the diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_VectorTransform):
    """The products of the matrices of `LowerCholeskyTransform` with their transposes."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(linalg.cholesky(y))


class ReshapeTransform(Transform):
    """Events of one shape as events of another."""

    bijective = True

    def __init__(self, in_shape: Sequence[int], out_shape: Sequence[int], cache_size: int = 0) -> None:
        self.in_shape = Size(in_shape)
        self.out_shape = Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueRangeError("in_shape, out_shape have different numbers of elements")
        super().__init__(cache_size=cache_size)

    @constraints.dependent_property
    def domain(self) -> Constraint:
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property
    def codomain(self) -> Constraint:
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(x.shape[: x.dim() - len(self.in_shape)])

    def forward_shape(self, shape: Size) -> Size:
        return _replaced(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Size) -> Size:
        return _replaced(shape, self.out_shape, self.in_shape)


def _replaced(shape: Size, event: Size, other: Size) -> Size:
    """A shape with another event shape."""
    require_dims(len(shape) >= len(event))
    cut = len(shape) - len(event)
    if tuple(shape[cut:]) != tuple(event):
        raise ValueRangeError(f"Shape mismatch: expected {shape[cut:]} but got {event}")
    return shape[:cut] + other
