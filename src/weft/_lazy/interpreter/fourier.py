"""Fourier transforms, which SciPy computes."""

from __future__ import annotations

from functools import partial

from jax.lax import FftType

from weft._base.types import Arg
from weft._lazy.interpreter.table import Array, Function, Params, Types, library, primitive

_fft: Arg = partial(library, "scipy.fft")


@primitive("fft")
def _transform(params: Params, ins: Types, outs: Types) -> Function:
    """Transforms along the last dims, in the precision of the input."""
    lengths: tuple[int, ...] = params["fft_lengths"]
    axes, dtype = tuple(range(-len(lengths), 0)), outs[0].dtype
    name = {FftType.FFT: "fftn", FftType.IFFT: "ifftn", FftType.RFFT: "rfftn", FftType.IRFFT: "irfftn"}[
        params["fft_type"]
    ]

    def transform(x: Array) -> Array:
        return getattr(_fft(), name)(x, lengths, axes).astype(dtype, copy=False)

    return transform
