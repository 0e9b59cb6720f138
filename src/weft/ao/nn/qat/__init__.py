"""Layers for quantization-aware training."""

from weft._base.exports import on_first_use as _on_first_use

__getattr__, __dir__ = _on_first_use(
    __name__,
    {"weft.ao.nn.qat.modules": "*"},
    ("dynamic", "modules"),
)
