"""`ao.nn.intrinsic.quantized.modules.bn_relu` under its former path."""

from weft._base.exports import same_as as _same_as

__getattr__, __dir__ = _same_as("weft.ao.nn.intrinsic.quantized.modules.bn_relu")
