"""The current line of the user's program."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, ParamSpec, TypeVar

from weft._base import config
from weft.errors import WeftError

P = ParamSpec("P")
R = TypeVar("R")

_PACKAGE = str(Path(__file__).resolve().parent.parent) + "/"
_LIBRARY = str(Path(threading.__file__).parent)
_OURS = (_PACKAGE, "<weft", "<frozen", threading.__file__, contextlib.__file__)  # beginnings of names of files
_GENERATED = ("namedtuple_", "weft.", "torch.", "jax.")  # beginnings of names of modules


def user_site(below: FrameType | None = None) -> str:
    """`file:line` of the innermost frame outside of this package (and of jax), or the site that `stand_for` set.

    With `below`, a frame of this package, only frames that have called that one count.
    """
    frame = user_frame(below)
    if frame is not None:
        return f"{frame.f_code.co_filename}:{frame.f_lineno}"
    return _EntryPoint.site or f"the thread {threading.current_thread().name!r}"


def user_stack() -> tuple[str, ...]:
    """The frames outside of this package (and of jax), the innermost first, as `file(line): function`."""
    lines: list[str] = []
    frame = user_frame()
    while frame is not None and frame.f_code is not _EntryPoint.entry:
        if not _is_ours(frame.f_code):
            lines.append(f"{frame.f_code.co_filename}({frame.f_lineno}): {frame.f_code.co_name}")
        frame = frame.f_back
    return tuple(lines)


# no cell: only texts and reports depend on it
class Noting:
    """Whether the lines at which values are made are noted (`_lazy/sites.py`)."""

    on = config.HLO_DEBUG


# no cell: only texts and reports depend on it
class _EntryPoint:
    """For a process without a user's program: the code of its outermost frame, and the site to report."""

    entry: CodeType | None = None
    site = ""


def stand_for(site: str, entry: CodeType) -> None:
    """Report `site` as the user's line if there is no user's frame above that of `entry`."""
    _EntryPoint.site, _EntryPoint.entry = site, entry


def line_of(function: object) -> str | None:
    """`file:line` of a function, or None if it is not the user's."""
    code = getattr(function, "__code__", None)
    return None if code is None or _is_ours(code) else f"{code.co_filename}:{code.co_firstlineno}"


# no cell: a replay warns of nothing: the capture has
class Repeated:
    """Whether a line gives a warning each time, and not only once."""

    always = False


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the line of `user_site`, at whatever depth of this package it is raised."""
    frame = user_frame() or sys._getframe()  # pyright: ignore[reportPrivateUsage]
    names = frame.f_globals
    # where Python notes the warnings that a line has given
    registry: dict[Any, Any] = {} if Repeated.always else names.setdefault("__warningregistry__", {})
    warnings.warn_explicit(
        message, category, frame.f_code.co_filename, frame.f_lineno, names.get("__name__", "<string>"), registry
    )


def raised_here(error: BaseException) -> bool:
    """Whether an exception was raised by this package (or jax), not by a user's function that it has called."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and _is_ours(trace.tb_frame.f_code)


UNTIL_USER = (WeftError, KeyboardInterrupt)
"""What comes from within this package, or was raised there by chance: tracebacks end at the user's line."""


def end_at_user(error: BaseException) -> None:
    """Let the traceback of an exception that is being handled end at the innermost line of the user's.

    Raised again by a bare `raise`, which adds no frame, it shows the line that has called the function, as where
    functions are compiled code. `WEFT_FULL_TRACEBACKS=1` keeps everything, for work on this package.
    """
    if config.FULL_TRACEBACKS:
        return
    if error.__cause__ is not None and raised_here(error.__cause__):
        error.__cause__ = None  # its reason is in the message
    if isinstance(error, KeyboardInterrupt) and error.__context__ is not None and raised_here(error.__context__):
        error.__context__ = None  # what was being handled by chance when the signal came
    trace, last = error.__traceback__, None
    comes_from_outside = isinstance(error, KeyboardInterrupt)  # wherever it is, as in what we call of Python's library
    while trace is not None:
        code = trace.tb_frame.f_code
        if not (_is_ours(code) or (comes_from_outside and (_is_of_python(code) or _is_generated(trace.tb_frame)))):
            last = trace
        trace = trace.tb_next
    if last is None:
        error.__traceback__ = None
    else:
        last.tb_next = None


def ends_at_user(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function below which tracebacks of this package's errors and of Ctrl-C show nothing of the package."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except UNTIL_USER as error:
            end_at_user(error)
            raise

    return call


def calling_frame(depth: int) -> FrameType:
    """The frame that is `depth` calls above the function that calls this."""
    return sys._getframe(depth + 1)  # pyright: ignore[reportPrivateUsage]  public, for all its name


def user_frame(below: FrameType | None = None) -> FrameType | None:
    """The innermost frame outside of this package (and of jax), or None; of those that have called `below`."""
    frame = sys._getframe(1) if below is None else below  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_code is _EntryPoint.entry:
            return None
        if not _is_ours(frame.f_code):
            break
        frame = frame.f_back
    return frame


def _is_of_python(code: CodeType) -> bool:
    """Whether code belongs to Python's library, or to NumPy."""
    name = code.co_filename
    return (name.startswith(_LIBRARY) and "site-packages" not in name) or "/numpy/" in name


def _is_generated(frame: FrameType) -> bool:
    """Whether a frame is of a method that Python's library has written for a named tuple, or a data class of ours."""
    return frame.f_code.co_filename == "<string>" and str(frame.f_globals.get("__name__")).startswith(_GENERATED)


def _is_ours(code: CodeType) -> bool:
    name = code.co_filename
    return name.startswith(_OURS) or "/jax/" in name
