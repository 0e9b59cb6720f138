"""Random inputs for operators with two tensors."""

from __future__ import annotations

from weft._base.dtype import DType, float32
from weft.utils.benchmark._fuzzer import Fuzzer
from weft.utils.benchmark.op_fuzzers._operands import (
    ELEMENTS,
    broadcast_parameters,
    operand,
    size_parameters,
    step_parameters,
)


class BinaryOpFuzzer(Fuzzer):
    """Draws "x" as `UnaryOpFuzzer` does, and "y", which has its sizes or 1 for some of them."""

    def __init__(self, seed: int | None, dtype: DType = float32, cuda: bool = False) -> None:
        super().__init__(
            [size_parameters(), broadcast_parameters(), step_parameters("x"), step_parameters("y")],
            [
                operand("x", "k", dtype=dtype, cuda=cuda, **ELEMENTS),
                operand("y", "y_k", dtype=dtype, cuda=cuda),
            ],
            seed=seed,
        )
