"""Kinds of quantization, under PyTorch's import path."""

from weft.ao._observing.quant_type import QuantType as QuantType
