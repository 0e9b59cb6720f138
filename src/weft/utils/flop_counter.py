"""Counts of floating-point operations, which there are none of yet."""

from __future__ import annotations

from typing import Any

from weft.errors import UnsupportedCallError


class FlopCounterMode:
    """Would count what operators compute. Making one raises `NotImplementedError`, which says what to use instead."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedCallError(
            "utils.flop_counter: operators are not counted; XLA's estimate for a whole function is "
            "jax.jit(weft.to_jax(function)).lower(*arrays).cost_analysis()['flops']"
        )
