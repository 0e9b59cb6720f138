"""Fused layers for quantization-aware training."""

from weft._base.exports import on_first_use as _on_first_use

__getattr__, __dir__ = _on_first_use(
    __name__,
    {
        "weft.ao.nn.intrinsic.qat.modules.conv_fused": (
            "ConvBn1d",
            "ConvBn2d",
            "ConvBn3d",
            "ConvBnReLU1d",
            "ConvBnReLU2d",
            "ConvBnReLU3d",
            "ConvReLU1d",
            "ConvReLU2d",
            "ConvReLU3d",
            "freeze_bn_stats",
            "update_bn_stats",
        ),
        "weft.ao.nn.intrinsic.qat.modules.linear_fused": ("LinearBn1d",),
        "weft.ao.nn.intrinsic.qat.modules.linear_relu": ("LinearReLU",),
    },
    (),
)
