"""Fused layers, quantized."""

from weft._base.exports import on_first_use as _on_first_use

__getattr__, __dir__ = _on_first_use(
    __name__,
    {
        "weft.ao.nn.intrinsic.quantized.modules.bn_relu": (
            "BNReLU2d",
            "BNReLU3d",
        ),
        "weft.ao.nn.intrinsic.quantized.modules.conv_relu": (
            "ConvReLU1d",
            "ConvReLU2d",
            "ConvReLU3d",
        ),
        "weft.ao.nn.intrinsic.quantized.modules.linear_relu": (
            "LinearLeakyReLU",
            "LinearReLU",
            "LinearTanh",
        ),
    },
    ("dynamic", "modules"),
)
