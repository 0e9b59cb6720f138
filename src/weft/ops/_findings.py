"""Results of checks. A check says by one number which values an operator cannot take.

Checks run on jax arrays in compiled programs, and on NumPy arrays where the values are in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array


def namespace(array: object) -> ModuleType:
    """NumPy for its arrays, `jax.numpy` for all others."""
    return np if isinstance(array, np.ndarray | np.generic) else jnp


class Finding(Protocol):
    """The result of a check."""

    def code(self) -> Array:
        """0 when all is well, else an int64 that `text` can read."""
        ...

    def text(self, template: str, code: int) -> str:
        """The error's text, from the row's `Check.text`."""
        ...


@partial(jax.tree_util.register_dataclass, data_fields=["bad"], meta_fields=[])
@dataclass(frozen=True)
class Flags:
    """True for each bad value."""

    bad: Array

    def code(self) -> Array:
        return self.bad.any().astype(np.int64)

    def text(self, template: str, code: int) -> str:
        del code
        return template


_GOOD = -(2**63)


@partial(jax.tree_util.register_dataclass, data_fields=["marks"], meta_fields=["location"])
@dataclass(frozen=True)
class Misses:
    """Indices out of bounds. `marks` has one int64 for each index, which is larger for a bad one than for a good one;
    `location` describes what was indexed.
    """

    marks: Array
    location: str

    def code(self) -> Array:
        """The largest mark, by a single reduction, which costs no more than that of `Flags`."""
        return namespace(self.marks).max(self.marks, initial=_GOOD) ^ np.int64(_GOOD)

    def text(self, template: str, code: int) -> str:
        return template.format(code - 1 if code > 0 else code, self.location)


def misses(index: Array, bad: Array, location: str) -> Misses:
    """The indices that are marked True in `bad`, as a finding."""
    index = index.astype(np.int64)
    xp = namespace(index)
    code = xp.where(index < 0, index, index + 1)
    return Misses(xp.where(bad, code ^ np.int64(_GOOD), np.int64(_GOOD)), location)


@partial(jax.tree_util.register_dataclass, data_fields=["info"], meta_fields=[])
@dataclass(frozen=True)
class Failures:
    """LAPACK's `info` of each matrix of a batch: 0, or the place (counted from 1) at which it failed."""

    info: Array

    def code(self) -> Array:
        """The number of the first matrix that failed, times 2**32, plus the place at which it failed."""
        info = self.info.reshape(-1).astype(np.int64)
        if not info.size:
            return namespace(info).zeros((), np.int64)
        which = (info != 0).argmax()
        return namespace(info).where(info[which] != 0, (which.astype(np.int64) << 32) | info[which], 0)

    def text(self, template: str, code: int) -> str:
        """The template has two fields: the batch element, where there is a batch, and the place."""
        return template.format(f"(Batch element {code >> 32}): " if self.info.ndim else "", code & 0xFFFFFFFF)


@partial(jax.tree_util.register_dataclass, data_fields=["parts"], meta_fields=["templates"])
@dataclass(frozen=True)
class FirstOf:
    """Several findings, each with its own error text. The first one whose code is not 0 counts."""

    parts: tuple[Finding, ...]
    templates: tuple[str, ...]

    def code(self) -> Array:
        """The code of the part shifted up by a few bits, which hold the number of the part, counted from 1."""
        result: Any = np.int64(0)
        for at, part in reversed(list(enumerate(self.parts, 1))):
            code = part.code()
            result = namespace(code).where(code != 0, (code << _PART_BITS) | at, result)
        return result

    def text(self, template: str, code: int) -> str:
        """The template has one field, for the text of the part."""
        at = (code & ((1 << _PART_BITS) - 1)) - 1
        return template.format(self.parts[at].text(self.templates[at], code >> _PART_BITS))


_PART_BITS = 3


@partial(jax.tree_util.register_dataclass, data_fields=["values"], meta_fields=["stop"])
@dataclass(frozen=True)
class Beyond:
    """Values of which some may be negative, or equal to or larger than `stop`."""

    values: Array
    stop: int

    def code(self) -> Array:
        """The smallest value times 2**32 plus the largest, both clipped to 32 bits; 0 if all values are in range."""
        xp = namespace(self.values)
        if not self.values.size:
            return xp.zeros((), np.int64)
        low, high = (xp.clip(of(self.values).astype(np.int64), -(2**31), 2**31 - 1) for of in (xp.min, xp.max))
        return xp.where((low < 0) | (high >= self.stop), (low << 32) | (high & 0xFFFFFFFF), 0)

    def text(self, template: str, code: int) -> str:
        """The template has three fields: the largest value allowed, the smallest and the largest value found."""
        return template.format(self.stop - 1, code >> 32, ((code + 2**31) & 0xFFFFFFFF) - 2**31)


_KINDS = (Misses, Failures, FirstOf, Beyond)


def finding(result: Misses | Failures | FirstOf | Beyond | Array) -> Finding:
    """The result of a row's check as a finding; a plain array counts as flags."""
    return result if isinstance(result, _KINDS) else Flags(result)
