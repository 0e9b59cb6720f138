"""What libraries call of PyTorch's reader of pickles that runs no code."""

from __future__ import annotations

from typing import IO, Any

from weft._base.types import PyTree
from weft._checkpoint.pickled import globals_named
from weft._checkpoint.safe import add_safe_globals as _add_safe_globals
from weft._checkpoint.safe import blocked_modules, trusted_by_name
from weft._checkpoint.safe import clear_safe_globals as _clear_safe_globals
from weft._checkpoint.safe import get_safe_globals as _get_safe_globals
from weft._checkpoint.safe import safe_globals as _safe_globals
from weft._checkpoint.torch_files import allowed_globals, plain_object

__all__ = ["_add_safe_globals", "_clear_safe_globals", "_get_safe_globals", "_safe_globals"]

_blocklisted_modules = list(blocked_modules)


def _get_allowed_globals() -> dict[str, Any]:
    """What stands for the globals that `weft.load` takes by default, by name."""
    return allowed_globals()


def _get_user_allowed_globals() -> dict[str, Any]:
    """The classes and functions that the program trusts, by name."""
    return trusted_by_name()


def get_globals_in_pkl(file: IO[bytes]) -> set[str]:
    """The globals that a pickle names, such as `collections.OrderedDict`."""
    return globals_named(file)


def load(file: IO[bytes], *, encoding: str = "ASCII") -> PyTree:
    """The object of a pickle of plain objects; `pickle.UnpicklingError` for what `weft.load` refuses."""
    return plain_object(file, encoding)
