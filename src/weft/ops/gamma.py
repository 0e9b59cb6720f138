"""Incomplete gamma functions."""

from __future__ import annotations

from collections.abc import Callable

import jax

from weft._base.dtype import FLOAT
from weft.ops._dims import pointwise
from weft.ops._rows import documented, in_float64, require
from weft.ops._table import Array, Promote, defop


def _row(name: str, public: str, function: Callable[[Array, Array], Array], doc: str) -> None:
    def body(input: Array, other: Array) -> Array:
        require(input, f"{name}_cpu", FLOAT)
        return in_float64(function, input, other)

    row = defop(name, dims=pointwise, promote=Promote.COMMON, inplace=True, also=f"special.{public}")
    row(documented(body, name, doc))


_row(
    "igamma",
    "gammainc",
    jax.scipy.special.gammainc,
    "The lower regularised incomplete gamma function of order `input`.",
)
_row(
    "igammac",
    "gammaincc",
    jax.scipy.special.gammaincc,
    "The upper regularised incomplete gamma function of order `input`.",
)
