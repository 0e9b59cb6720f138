"""Exceptions of a worker process or thread, on their way to who waits for it."""

from __future__ import annotations

import pickle
import sys
import traceback
from types import TracebackType
from typing import Any, NoReturn

from weft.errors import WorkerError

ExceptionInfo = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


class ExceptionWrapper:
    """An exception and the text of its traceback, which can be sent: to be raised where its outcome is waited for.

    `exc_info` is what `sys.exc_info()` gives, by default of the exception that is being handled; `where` says in the
    message which worker it came from.
    """

    def __init__(self, exc_info: ExceptionInfo | None = None, where: str = "in background") -> None:
        kind, error, frames = exc_info or sys.exc_info()
        assert kind is not None, "there is no exception to be wrapped"
        self.exc_type = _sendable(kind)
        self.exc_msg = "".join(traceback.format_exception(kind, error, frames))
        self.where = where
        self._name = kind.__name__

    def reraise(self) -> NoReturn:
        """Raise it with the same type if that can be made of a text, otherwise as a `RuntimeError`."""
        text = _Text(f"Caught {self._name} {self.where}.\nOriginal {self.exc_msg}")
        try:
            make: Any = self.exc_type
            error = make(message=text) if getattr(make, "message", None) else make(text)
        except Exception:  # anything that the constructor may raise
            raise WorkerError(text) from None
        try:
            raise error
        finally:
            del error  # the exception refers to this frame, and so to who waits and its workers


class _Text(str):
    """A text that `KeyError` shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _sendable(kind: type[BaseException]) -> type[BaseException]:
    """The exception's type, or its first base class that can be pickled."""
    for base in kind.__mro__:
        try:
            pickle.dumps(base)
        except (pickle.PicklingError, AttributeError):
            continue
        return base
    raise AssertionError("object can be pickled")
