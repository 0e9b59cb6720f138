"""What inputs of operators have in common: up to three dims, of any sizes and of powers of two, in several layouts."""

from __future__ import annotations

from typing import Any

from weft._base.types import Arg
from weft.utils.benchmark._fuzzer import FuzzedParameter, FuzzedTensor, ParameterAlias

_DIMS = range(3)
_LEAST, _MOST = 16, 16 * 1024**2
_POWERS = [1 << n for n in range(_LEAST.bit_length() - 1, _MOST.bit_length())]
_STEPS = {1: 0.8, 2: 0.06, 4: 0.06, 8: 0.04, 16: 0.04}


def size_parameters() -> list[FuzzedParameter]:
    """The number of dims, "dim", and their sizes, "k0" to "k2": one in five of them is a power of two."""
    parameters = [
        FuzzedParameter("dim", distribution={1: 0.3, 2: 0.4, 3: 0.3}, strict=True),
        FuzzedParameter("random_value", minval=0, maxval=2**32 - 1, distribution="uniform"),
    ]
    for i in _DIMS:
        either: dict[Any, float] = {ParameterAlias(f"k_any_{i}"): 0.8, ParameterAlias(f"k_pow2_{i}"): 0.2}
        parameters += [
            FuzzedParameter(f"k_any_{i}", _LEAST, _MOST, "loguniform"),
            FuzzedParameter(f"k_pow2_{i}", distribution=dict.fromkeys(_POWERS, 1 / len(_POWERS))),
            FuzzedParameter(f"k{i}", distribution=either, strict=True),
        ]
    return parameters


def broadcast_parameters() -> list[FuzzedParameter]:
    """The sizes of a second tensor, "y_k0" to "y_k2": those of the first, or one in five times 1."""
    sizes: list[dict[Any, float]] = [{ParameterAlias(f"k{i}"): 0.8, 1: 0.2} for i in _DIMS]
    return [FuzzedParameter(f"y_k{i}", distribution=sizes[i], strict=True) for i in _DIMS]


def step_parameters(name: str) -> list[FuzzedParameter]:
    """The steps of a tensor within a larger one, "x_step_0" to "x_step_2" of "x"."""
    return [FuzzedParameter(f"{name}_step_{i}", distribution=_STEPS) for i in _DIMS]


def operand(name: str, sizes: str, **options: Arg) -> FuzzedTensor:
    """A tensor of up to 2 GB, with the sizes that begin so; three out of four are contiguous before their steps."""
    return FuzzedTensor(
        name,
        tuple([f"{sizes}{i}" for i in _DIMS]),
        tuple([f"{name}_step_{i}" for i in _DIMS]),
        probability_contiguous=0.75,
        max_allocation_bytes=2 * 1024**3,
        dim_parameter="dim",
        **options,
    )


ELEMENTS = {"min_elements": 4 * 1024, "max_elements": 32 * 1024**2}
"""How many elements a first operand has."""
