"""The kinds of the machine's steps, as `native/src/machine.h` has them."""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.types import Arg
from weft._lazy.native import native

LOOP, COPY, SELECT, REDUCE, PRODUCT, CALL, SEARCH, ACCUMULATE, DRAW, HASH, TAKE, SCATTER, SORT, READ, WRITE = range(15)
SEVERAL, OVERWRITES = 1, 2

Step = tuple[int, object, int, Sequence[int], Sequence[int]]
"""(kind, payload, flags of a call or how many elements one of the loop stands for, results, operands): `machine.h`."""


def extension() -> Arg:
    """The extension, without which nothing is traced."""
    assert native is not None, "nothing is traced without the extension"
    return native
