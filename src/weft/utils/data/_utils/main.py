"""The main program in worker processes, which may not be able to import it."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any


def _importable() -> bool:
    """Whether the main program is a module or a file, and not standard input or what is typed into a shell."""
    main = sys.modules["__main__"]
    if getattr(main, "__spec__", None) is not None:
        return True
    file = getattr(main, "__file__", None)
    return file is not None and os.path.exists(file)


def require_importable(obj: Any) -> None:
    """`PicklingError` for classes and functions of a main program that workers cannot import."""
    if isinstance(obj, (type, FunctionType)) and obj.__module__ == "__main__" and not _importable():
        raise pickle.PicklingError(
            f"{obj.__qualname__!r} is defined in a program from standard input or an interactive shell, which workers "
            "cannot import"
        )


@contextmanager
def main_if_importable() -> Iterator[None]:
    """A process that is started in the block imports the main program only where it can.

    Python gives a program from standard input the file name `<stdin>`, which `multiprocessing` would have it run.
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
