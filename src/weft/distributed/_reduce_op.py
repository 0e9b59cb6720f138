"""How collectives combine values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from weft.errors import ArgumentError


class ReduceOp(Enum):
    """What a reduction does with the values of all ranks; `AVG` divides the sum by the size of the group."""

    SUM = "sum"
    AVG = "avg"
    PRODUCT = "prod"
    MIN = "min"
    MAX = "max"
    BAND = "band"
    BOR = "bor"
    BXOR = "bxor"


@dataclass(frozen=True, slots=True)
class PremulSum:
    """A sum of values that each rank multiplies by `factor` first."""

    factor: float


Reduction = ReduceOp | PremulSum


def word_of(op: Reduction) -> str:
    """A reduction, as `_comm.reductions` names it."""
    return "premul_sum" if isinstance(op, PremulSum) else op.value


def as_reduction(op: object) -> Reduction:
    """A reduction, as an argument of a collective; `TypeError` for anything else."""
    if isinstance(op, (ReduceOp, PremulSum)):
        return op
    raise ArgumentError(f"argument 'op' must be a ReduceOp, such as ReduceOp.SUM, not {type(op).__name__}")
