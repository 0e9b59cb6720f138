"""The main module in worker processes, which may be unable to import it."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType


def _importable() -> bool:
    """Whether the main module is a module or a file, not standard input or an interactive shell."""
    main = sys.modules["__main__"]
    if getattr(main, "__spec__", None) is not None:
        return True
    file = getattr(main, "__file__", None)
    return file is not None and os.path.exists(file)


# no cell: set once in a worker
class _Worker:
    """Whether this process was forked to work for a loader, so that both have the same main module."""

    is_forked = False


def forked() -> None:
    """Note that this process is a forked worker."""
    _Worker.is_forked = True


def require_importable(obj: object) -> None:
    """Raise `PicklingError` for classes and functions of a main module that workers cannot import."""
    if _Worker.is_forked:
        return
    if isinstance(obj, (type, FunctionType)) and obj.__module__ == "__main__" and not _importable():
        raise pickle.PicklingError(
            f"{obj.__qualname__!r} is defined in a program from standard input or an interactive shell, which workers "
            "cannot import"
        )


@contextmanager
def main_if_importable() -> Iterator[None]:
    """Let processes that are started in the block import the main module only if that is possible.

    For a program from standard input, Python's file name is `<stdin>`, which `multiprocessing` would try to run.
    """
    own = vars(sys.modules["__main__"])
    if "__file__" not in own or _importable():
        yield
        return
    file = own.pop("__file__")
    try:
        yield
    finally:
        own["__file__"] = file
