"""Reductions of collectives."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn

from weft._tensor.kind_names import kind_and_advice
from weft.errors import ArgumentError


class ReduceOp(Enum):
    """The reduction of the values of all ranks; `AVG` divides the sum by the size of the group."""

    SUM = "sum"
    AVG = "avg"
    PRODUCT = "prod"
    MIN = "min"
    MAX = "max"
    BAND = "band"
    BOR = "bor"
    BXOR = "bxor"

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise ArgumentError(f"a ReduceOp is one of {', '.join(cls.__members__)}, and {value!r} is none")


ReduceOp.RedOpType = ReduceOp  # pyright: ignore[reportAttributeAccessIssue]  PyTorch's name for the type of members


@dataclass(frozen=True, slots=True)
class PremulSum:
    """A sum of values that each rank first multiplies by `factor`."""

    factor: float

    def __post_init__(self) -> None:
        _require_factor(self.factor)


def _require_factor(factor: object) -> None:
    if not isinstance(factor, (int, float)) and not hasattr(factor, "dtype"):
        raise ArgumentError(f"the factor of a sum must be a number or a tensor, not {type(factor).__name__}")


_make_nccl_premul_sum = PremulSum  # PyTorch has it only under this name

Reduction = ReduceOp | PremulSum


def word_of(op: Reduction) -> str:
    """The name of a reduction in `_comm.reductions`."""
    return "premul_sum" if isinstance(op, PremulSum) else op.value


def as_reduction(op: object) -> Reduction:
    """A reduction given as an argument of a collective; `TypeError` for anything else."""
    if isinstance(op, (ReduceOp, PremulSum)):
        return op
    raise ArgumentError(f"argument 'op' must be a ReduceOp, such as ReduceOp.SUM, not {kind_and_advice(op)}")


def supports_complex(reduceOp: Reduction) -> bool:
    """Whether a reduction supports complex numbers, as sums do."""
    return reduceOp not in _NOT_COMPLEX


_NOT_COMPLEX = {ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR}


class _FormerNames:
    """The former class of reductions, before `ReduceOp`."""

    def __getattr__(self, name: str) -> ReduceOp:
        if name not in ReduceOp.__members__:
            raise AttributeError(f"module 'weft.distributed' has no reduction {name!r}")
        warnings.warn(
            "`torch.distributed.reduce_op` is deprecated, please use `torch.distributed.ReduceOp` instead",
            FutureWarning,
            stacklevel=2,
        )
        return ReduceOp[name]


reduce_op = _FormerNames()
