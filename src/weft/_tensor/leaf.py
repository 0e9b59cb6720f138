"""Leaves of elements given by Python."""

from __future__ import annotations

from weft._base.state import ambient
from weft._base.types import Arg
from weft._lazy.aval import Aval
from weft._lazy.sites import noted
from weft._lazy.value import Value, tick


def leaf(aval: Aval, array: Arg, *, owner: Arg = None) -> Value:
    """A leaf with elements given by Python, which are constants of a compiled function."""
    value = noted(Value(aval, array, owner=owner))
    value.time = tick()
    capture = ambient().capture
    if capture is not None:
        capture.creates_leaf(value)
    return value
