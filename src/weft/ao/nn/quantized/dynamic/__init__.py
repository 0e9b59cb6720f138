"""Modules with quantized weights, whose inputs are put on a grid at each call."""

from weft._base.exports import on_first_use as _on_first_use

__getattr__, __dir__ = _on_first_use(
    __name__,
    {"weft.ao.nn.quantized.dynamic.modules": "*"},
    ("modules",),
)
