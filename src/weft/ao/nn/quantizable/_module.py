"""What layers made of parts have in common."""

from __future__ import annotations

from weft.ao._observing.utils import AnyQConfig
from weft.errors import PreconditionError
from weft.nn._module import Module


def qconfig_of(other: Module, default: object = None) -> AnyQConfig:
    """The `qconfig` of a float module; `AssertionError` if it has none, and none is given."""
    qconfig = getattr(other, "qconfig", default)
    if qconfig is None:
        raise PreconditionError(f"The float module must have 'qconfig': set that of the {type(other).__name__}")
    return qconfig
