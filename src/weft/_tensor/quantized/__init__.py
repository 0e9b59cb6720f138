"""Quantized tensors: integers that stand for multiples of a scale."""
