"""An affine layer and its batch normalisation, with fake-quantized weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft._tensor.tensor import Tensor
from weft.ao.nn.intrinsic.modules.fused import LinearBn1d as FusedLinearBn1d
from weft.ao.nn.intrinsic.qat.modules._with_norm import WithNorm
from weft.ao.nn.qat._module import FakeQuantized, require_qconfig
from weft.nn import functional as F
from weft.nn._linear import Linear
from weft.nn._norm import BatchNorm1d
from weft.nn.utils.fusion import fuse_linear_bn_eval

if TYPE_CHECKING:
    from weft.ao._observing.qconfig import QConfigAny
    from weft.nn._containers import AnyModule
    from weft.nn._module import Module


class LinearBn1d(WithNorm, FakeQuantized, Linear):
    """An affine layer and its normalisation, whose common weight is rounded as it will be when it is quantized."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        eps: float = 1e-5,
        momentum: float = 0.1,
        freeze_bn: bool = False,
        qconfig: QConfigAny = None,
    ) -> None:
        Linear.__init__(self, in_features, out_features, bias)
        self._set_norm(BatchNorm1d(out_features, eps, momentum, True, True), freeze_bn)
        self._set_fake_quant(qconfig)

    def _linear(self, input: Tensor, weight: Tensor) -> Tensor:
        return F.linear(input, weight)

    @classmethod
    def from_float(cls, mod: AnyModule, use_precomputed_fake_quant: bool = False) -> Module:
        """The layer with the parameters of a fused float one that has a `qconfig`."""
        del use_precomputed_fake_quant
        qconfig = require_qconfig(mod, (FusedLinearBn1d,), cls)
        linear, norm = mod[0], mod[1]
        result = cls(
            linear.in_features, linear.out_features, linear.bias is not None, norm.eps, norm.momentum, False, qconfig
        )
        result.weight, result.bias = linear.weight, linear.bias
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            setattr(result.bn, name, getattr(norm, name))
        return result

    def to_float(self) -> Module:
        """One float layer, with the normalisation folded in."""
        linear = Linear(self.in_features, self.out_features, self.bias is not None)
        linear.weight, linear.bias = self.weight, self.bias
        return fuse_linear_bn_eval(linear.eval(), self.bn.eval())
