"""opt_einsum, with which jax orders the products of `einsum`. It is always used; the flags are stored."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import ModuleType

import opt_einsum as _opt_einsum

from weft.backends._flags import set_within

enabled = True
strategy = "auto"


def is_available() -> bool:
    """True: jax needs it."""
    return True


def get_opt_einsum() -> ModuleType:
    """The package."""
    return _opt_einsum


def flags(**settings: object) -> AbstractContextManager[None]:
    """A block in which `enabled` or `strategy` have other values."""
    return set_within(globals(), settings)
