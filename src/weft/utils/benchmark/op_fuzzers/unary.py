"""Random inputs for operators with one tensor."""

from __future__ import annotations

from weft._base.dtype import DType, float32
from weft.utils.benchmark._fuzzer import Fuzzer
from weft.utils.benchmark.op_fuzzers._operands import ELEMENTS, operand, size_parameters, step_parameters


class UnaryOpFuzzer(Fuzzer):
    """Draws a tensor "x" of 1 to 3 dims and 4096 to 2**25 elements, of which some are not contiguous."""

    def __init__(self, seed: int | None, dtype: DType = float32, cuda: bool = False) -> None:
        super().__init__(
            [size_parameters(), step_parameters("x")],
            [operand("x", "k", dtype=dtype, cuda=cuda, **ELEMENTS)],
            seed=seed,
        )
