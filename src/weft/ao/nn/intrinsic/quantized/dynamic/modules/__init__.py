"""Fused layers with quantized weights."""

from weft._base.exports import on_first_use as _on_first_use

__getattr__, __dir__ = _on_first_use(
    __name__,
    {
        "weft.ao.nn.intrinsic.quantized.dynamic.modules.linear_relu": ("LinearReLU",),
    },
    (),
)
