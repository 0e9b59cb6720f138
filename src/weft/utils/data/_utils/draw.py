"""Random draws on the host. The order of samples is drawn without XLA, so no dataset length needs a compilation."""

from __future__ import annotations

import numpy as np

from weft._tensor.generator import Generator, default_generator, own_generator


def host_generator(generator: Generator | None) -> np.random.Generator:
    """A generator of NumPy's, seeded by one draw of `generator`, or of the default generator if that is None."""
    source = default_generator if generator is None else own_generator(generator)
    return np.random.default_rng(np.random.SeedSequence([n % 2**64 for n in source.draw()]))


def permutation(count: int, generator: Generator | None) -> list[int]:
    """The numbers below `count` in random order."""
    return host_generator(generator).permutation(count).tolist()
