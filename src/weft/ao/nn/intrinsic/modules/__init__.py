"""Layers that were fused, before they are quantized."""

from weft._base.exports import on_first_use as _on_first_use

__getattr__, __dir__ = _on_first_use(
    __name__,
    {
        "weft.ao.nn.intrinsic.modules.fused": (
            "BNReLU2d",
            "BNReLU3d",
            "ConvBn1d",
            "ConvBn2d",
            "ConvBn3d",
            "ConvBnReLU1d",
            "ConvBnReLU2d",
            "ConvBnReLU3d",
            "ConvReLU1d",
            "ConvReLU2d",
            "ConvReLU3d",
            "LinearBn1d",
            "LinearLeakyReLU",
            "LinearReLU",
            "LinearTanh",
            "_FusedModule",
        ),
    },
    ("fused",),
)
