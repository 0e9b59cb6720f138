"""How layers that follow each other become one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from weft._base.types import AnyCallable
from weft.ao._observing.utils import get_combined_dict
from weft.ao.nn.intrinsic.modules import fused
from weft.errors import PreconditionError
from weft.nn._activation import LeakyReLU, ReLU, Tanh
from weft.nn._conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from weft.nn._linear import Linear
from weft.nn._norm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from weft.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

if TYPE_CHECKING:
    from weft.nn._module import Module

Fuser = AnyCallable
"""(for training?, layers…) -> the fused layer."""


def _require_one_mode(*layers: Module) -> None:
    if len({layer.training for layer in layers}) != 1:
        names = " and ".join(type(layer).__name__ for layer in layers)
        raise PreconditionError(f"{names} both must be in the same mode (train or eval).")


def _require_channels(channels: int, norm: Module) -> None:
    if norm.num_features != channels:
        raise PreconditionError(
            f"Output channel of the layer must match num_features of {type(norm).__name__}, but they are {channels} "
            f"and {norm.num_features}."
        )
    if not norm.affine or not norm.track_running_stats:
        raise PreconditionError(
            f"Only support fusing {type(norm).__name__} with affine set to True and tracking_running_stats set to True"
        )


_WITH_NORM: dict[type, AnyCallable] = {Conv1d: fused.ConvBn1d, Conv2d: fused.ConvBn2d, Conv3d: fused.ConvBn3d}
_WITH_NORM_AND_RELU: dict[type, AnyCallable] = {
    Conv1d: fused.ConvBnReLU1d,
    Conv2d: fused.ConvBnReLU2d,
    Conv3d: fused.ConvBnReLU3d,
}
_WITH_RELU: dict[type, AnyCallable] = {Conv1d: fused.ConvReLU1d, Conv2d: fused.ConvReLU2d, Conv3d: fused.ConvReLU3d}


def fuse_conv_bn(is_qat: bool, conv: Module, bn: Module) -> Module:
    """A convolution with its normalisation: folded in, or beside it for training."""
    _require_one_mode(conv, bn)
    if is_qat:
        _require_channels(conv.out_channels, bn)
        return _WITH_NORM[type(conv)](conv, bn)
    return fuse_conv_bn_eval(conv, bn)


def fuse_conv_bn_relu(is_qat: bool, conv: Module, bn: Module, relu: Module) -> Module:
    """A convolution with its normalisation and a ReLU."""
    _require_one_mode(conv, bn, relu)
    if is_qat:
        _require_channels(conv.out_channels, bn)
        return _WITH_NORM_AND_RELU[type(conv)](conv, bn, relu)
    return _WITH_RELU[type(conv)](fuse_conv_bn_eval(conv, bn), relu)


def fuse_linear_bn(is_qat: bool, linear: Module, bn: Module) -> Module:
    """An affine layer with its normalisation."""
    _require_one_mode(linear, bn)
    if is_qat:
        _require_channels(linear.out_features, bn)
        return fused.LinearBn1d(linear, bn)
    return fuse_linear_bn_eval(linear, bn)


def fuse_convtranspose_bn(is_qat: bool, convt: Module, bn: Module) -> Module:
    """A transposed convolution with its normalisation, for evaluation only."""
    _require_one_mode(convt, bn)
    if is_qat:
        raise PreconditionError("Fusing ConvTranspose+BatchNorm not yet supported in QAT.")
    return fuse_conv_bn_eval(convt, bn, transpose=True)


def _sequence(kind: Callable[..., Module]) -> Fuser:
    """A fuser that puts layers into a sequence with a name of its own."""

    def fuse(is_qat: bool, *layers: Module) -> Module:
        del is_qat
        return kind(*layers)

    return fuse


DEFAULT_OP_LIST_TO_FUSER_METHOD: dict[tuple[type, ...], Any] = {
    (Conv1d, BatchNorm1d): fuse_conv_bn,
    (Conv1d, BatchNorm1d, ReLU): fuse_conv_bn_relu,
    (Conv2d, BatchNorm2d): fuse_conv_bn,
    (Conv2d, BatchNorm2d, ReLU): fuse_conv_bn_relu,
    (Conv3d, BatchNorm3d): fuse_conv_bn,
    (Conv3d, BatchNorm3d, ReLU): fuse_conv_bn_relu,
    (Conv1d, ReLU): _sequence(fused.ConvReLU1d),
    (Conv2d, ReLU): _sequence(fused.ConvReLU2d),
    (Conv3d, ReLU): _sequence(fused.ConvReLU3d),
    (Linear, BatchNorm1d): fuse_linear_bn,
    (Linear, ReLU): _sequence(fused.LinearReLU),
    (Linear, LeakyReLU): _sequence(fused.LinearLeakyReLU),
    (Linear, Tanh): _sequence(fused.LinearTanh),
    (BatchNorm2d, ReLU): _sequence(fused.BNReLU2d),
    (BatchNorm3d, ReLU): _sequence(fused.BNReLU3d),
    (ConvTranspose1d, BatchNorm1d): fuse_convtranspose_bn,
    (ConvTranspose2d, BatchNorm2d): fuse_convtranspose_bn,
    (ConvTranspose3d, BatchNorm3d): fuse_convtranspose_bn,
}
"""What `fuse_modules` makes of layers of these types. The types are a pattern, which graph mode can look for."""


def get_fuser_method(
    op_list: Iterable[type], additional_fuser_method_mapping: dict[tuple[type, ...], Fuser] | None = None
) -> Fuser:
    """The fuser for layers of these types; `AssertionError` if there is none."""
    fusers = get_combined_dict(DEFAULT_OP_LIST_TO_FUSER_METHOD, additional_fuser_method_mapping or {})
    if tuple(op_list) not in fusers:
        names = ", ".join(getattr(kind, "__name__", str(kind)) for kind in op_list)
        raise PreconditionError(f"did not find fuser method for: {names}; DEFAULT_OP_LIST_TO_FUSER_METHOD lists them")
    return fusers[tuple(op_list)]
