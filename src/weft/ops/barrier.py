"""A barrier for the compiler."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ops import _jax
from weft.ops._dims import Factors, Sizes
from weft.ops._kinds import Array, Arrays
from weft.ops._table import INTERNAL, NO_ARITHMETIC, defop


def _each_itself(shapes: Sequence[Sizes]) -> Factors:
    """For rows whose outputs are their inputs."""
    letters = [tuple((at, dim) for dim in range(len(shape))) for at, shape in enumerate(shapes)]
    return Factors(tuple(letters), tuple(letters), separate=True)


@defop(types=NO_ARITHMETIC, dims=_each_itself, public=INTERNAL)
def optimization_barrier(tensors: Arrays) -> list[Array]:
    """The tensors. The compiler moves nothing from one side of this to the other."""
    return list(_jax.optimization_barrier(tuple(tensors)))
