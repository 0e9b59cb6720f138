"""Kernels for XLA on CPUs, which Weft uses where they are faster. It needs nothing else of this package than `path`."""

from pathlib import Path


def path() -> Path:
    """The shared library; it may not have been built."""
    return Path(__file__).with_name("libweft_native.so")
