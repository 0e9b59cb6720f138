"""What checks find: values that an operator cannot take, as one number that says which.

Checks run on jax arrays in compiled programs, and on NumPy arrays where the values are at hand.
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


def namespace(array: Any) -> ModuleType:
    """NumPy for its arrays, `jax.numpy` for all others."""
    return np if isinstance(array, np.ndarray | np.generic) else jnp


class Finding(Protocol):
    """What a check has found."""

    def code(self) -> Array:
        """0 when all is well, else an int64 that `text` can read."""
        ...

    def text(self, template: str, code: int) -> str:
        """What is wrong, in the words of the row's `check_text`."""
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


@partial(jax.tree_util.register_dataclass, data_fields=["marks"], meta_fields=["where"])
@dataclass(frozen=True)
class Misses:
    """A mark for each index, larger for one that misses, and a description of what was indexed."""

    marks: Array
    where: str

    def code(self) -> Array:
        """One reduction, as cheap as that of flags."""
        return namespace(self.marks).max(self.marks, initial=_GOOD) ^ np.int64(_GOOD)

    def text(self, template: str, code: int) -> str:
        return template.format(code - 1 if code > 0 else code, self.where)


def misses(index: Array, bad: Array, where: str) -> Misses:
    """The indices that `bad` flags."""
    index = index.astype(np.int64)
    xp = namespace(index)
    code = xp.where(index < 0, index, index + 1)
    return Misses(xp.where(bad, code ^ np.int64(_GOOD), np.int64(_GOOD)), where)


@partial(jax.tree_util.register_dataclass, data_fields=["info"], meta_fields=[])
@dataclass(frozen=True)
class Failures:
    """LAPACK's `info` of each matrix of a batch: 0, or the place (counted from 1) at which it failed."""

    info: Array

    def code(self) -> Array:
        """The place at which the first of the matrices failed that did, and which one that is."""
        info = self.info.reshape(-1).astype(np.int64)
        if not info.size:
            return namespace(info).zeros((), np.int64)
        which = (info != 0).argmax()
        return namespace(info).where(info[which] != 0, (which.astype(np.int64) << 32) | info[which], 0)

    def text(self, template: str, code: int) -> str:
        """The template has two fields: the batch element, where there is a batch, and the place."""
        return template.format(f"(Batch element {code >> 32}): " if self.info.ndim else "", code & 0xFFFFFFFF)


def finding(result: Any) -> Finding:
    """What a row's check returns as a finding: it may be a plain array of flags."""
    return result if isinstance(result, Misses | Failures) else Flags(result)
