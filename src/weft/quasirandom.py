"""Sobol sequences: points that fill the unit cube more evenly than random ones."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.stats import qmc

from weft._base.dtype import DType
from weft._base.state import default_dtype
from weft._tensor.convert import tensor
from weft._tensor.generator import default_generator
from weft._tensor.output import replace
from weft._tensor.tensor import Tensor
from weft.errors import ValueRangeError


class SobolEngine:
    """Draws the points of a Sobol sequence, of up to 21201 dims, in order (Joe and Kuo's direction numbers).

    With `scramble`, Owen's scrambling makes the points random; `seed` determines it, by default a number drawn from
    the default generator.
    """

    MAXBIT: ClassVar[int] = 30
    MAXDIM: ClassVar[int] = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueRangeError(
                f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}], got {dimension}"
            )
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self.num_generated = 0
        drawn = default_generator.draw() if scramble and seed is None else (seed or 0,)
        entropy = [n % 2**64 for n in drawn]
        self._sequence = qmc.Sobol(dimension, scramble=scramble, bits=self.MAXBIT, rng=np.random.default_rng(entropy))

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: DType | None = None) -> Tensor:
        """The next `n` points, (n, dimension)."""
        points = self._sequence.random(n) if n else np.zeros((0, self.dimension))
        self.num_generated += n
        result = tensor(points, dtype=dtype or (default_dtype() if out is None else out.dtype))
        return result if out is None else replace(out, result)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: DType | None = None) -> Tensor:
        """The next `2 ** m` points, whose total number must stay a power of two, where they are balanced."""
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueRangeError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: n={self.num_generated}+2**{m}="
                f"{total}. If you still want to do this, please use 'SobolEngine.draw()' instead."
            )
        return self.draw(n, out, dtype)

    def reset(self) -> SobolEngine:
        """Start from the first point again."""
        self._sequence.reset()
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave out `n` points."""
        self._sequence.fast_forward(n)
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        options = [f"dimension={self.dimension}"]
        if self.scramble:
            options.append("scramble=True")
        if self.seed is not None:
            options.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(options)})"
