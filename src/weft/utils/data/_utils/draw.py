"""Draws on the host: the order of samples is made without XLA, so no dataset length is compiled for."""

from __future__ import annotations

import numpy as np

from weft._tensor.generator import Generator, default_generator


def host_generator(generator: Generator | None) -> np.random.Generator:
    """NumPy's generator from one draw of a generator of the package; of the default one where none is given."""
    return np.random.default_rng(np.random.SeedSequence((generator or default_generator).draw()))


def permutation(count: int, generator: Generator | None) -> list[int]:
    """The numbers below `count` in random order."""
    return host_generator(generator).permutation(count).tolist()
