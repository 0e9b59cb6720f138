"""Benchmarks: the same programs under Weft and under PyTorch, alternating on one machine."""
