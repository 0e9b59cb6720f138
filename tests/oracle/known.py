"""What is not compared as it stands, each with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.oracle.cases import Case

UNDEFINED = frozenset({
    "bernoulli", "empty", "empty_like", "multinomial", "new_empty", "new_empty_strided", "normal",
    "normal_in_place", "normal_number_mean", "rand_like", "randint", "randint_like", "randn", "randn_like",
    "nn_functional_alpha_dropout", "nn_functional_dropout", "nn_functional_dropout2d", "nn_functional_dropout3d",
    "nn_functional_feature_alpha_dropout_with_train", "nn_functional_rrelu", "uniform", "exponential", "cauchy",
    "geometric", "log_normal", "empty_permuted", "empty_strided", "nn_functional_multi_head_attention_forward",
})  # fmt: skip
"""Operators whose values are drawn at random or not initialised: dtypes and shapes are compared."""

SIGN_FREE = frozenset({"linalg_eigh", "linalg_qr", "linalg_svd", "qr", "svd"})
"""Decompositions that are unique up to a sign (or phase) of each vector: absolute values are compared."""

WIDER: dict[str, float] = {}
"""Operators whose tolerance is scaled, where both results are equally far from the exact one."""

REORDERED: dict[str, Callable[..., tuple[Any, ...]]] = {
    "einsum": lambda operands, equation: (equation, operands),
    "polygamma": lambda x, n: (n, x),
}
"""Functions whose samples come in another order of arguments: how the database calls them."""


@dataclass(frozen=True)
class Known:
    """A difference that stays: of an operator, where the fault's text has `part`."""

    op: str
    reason: str
    dtype: str = ""
    part: str = ""


KNOWN: tuple[Known, ...] = ()


def reason_for(case: Case, fault: str) -> str:
    """Why a fault is known; empty when it is not."""
    for known in KNOWN:
        if known.op == case.op and known.dtype in ("", case.dtype) and known.part in fault:
            return known.reason
    return ""
