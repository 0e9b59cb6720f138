"""Detects a function's side effects while it is captured: a replay would not repeat them."""

from __future__ import annotations

import builtins
import gc
import random
import sys
import time
from collections.abc import Callable
from datetime import date, datetime
from io import IOBase
from types import CodeType, FrameType
from typing import Any

import numpy as np

from weft._base.types import Arg
from weft._tensor.compile.code import runs_library, runs_own
from weft._tensor.compile.snapshot import Snapshot

_OUTWARD = frozenset(
    {
        *(builtins.print, builtins.input, builtins.open, datetime.now, date.today),
        datetime.utcnow,  # pyright: ignore[reportDeprecated]  programs still call it
    }
)


class CallWatch:
    """Watches the calls of this thread within a `with` block.

    The user's functions that were not known to run are added to `snapshot`. `prevent` is called for what prevents a
    capture: input and output, clocks, draws from other generators than those of tensors, and functions whose code
    cannot be inspected.
    """

    def __init__(self, snapshot: Snapshot, prevent: Callable[[str], None]) -> None:
        self._snapshot = snapshot
        self._prevent = prevent
        self._codes: set[CodeType] = set()
        self._watching = False

    def __enter__(self) -> None:
        self._draws = _draws()
        if sys.getprofile() is not None:
            self._prevent("needs the place of the profiler that is running, to see what else it does")
            return
        self._watching = True
        sys.setprofile(self._on_event)

    def __exit__(self, *_: object) -> None:
        if self._watching:
            sys.setprofile(None)
        if _draws() != self._draws:
            self._prevent("draws from Python's or NumPy's random numbers, which would be the same in every replay")

    def _on_event(self, frame: FrameType, event: str, called: Arg) -> None:
        if event == "call":
            code = frame.f_code
            if code not in self._codes:
                self._codes.add(code)
                if not runs_library(frame):
                    unseen = self._snapshot.add_code(code, frame.f_globals)
                    if unseen:
                        self._prevent(f"depends on {unseen}, which cannot be seen from outside")
        elif event == "c_call" and _goes_outward(called):
            site = _user_site(frame)
            if site:
                self._prevent(f"calls `{called.__name__}` at {site}, which a replay would not do again")


def _goes_outward(called: object) -> bool:
    owner = getattr(called, "__self__", None)
    return owner is time or isinstance(owner, IOBase) or (type(called) is type(print) and called in _OUTWARD)


def _user_site(frame: FrameType | None) -> str:
    """`file:line` of the user's code that has made the call, directly or through libraries; "" for other callers.

    One of these is the garbage collector, whose callbacks may run at any line.
    """
    while frame is not None and not _is_callback_of_collector(frame.f_code):
        if runs_own(frame):
            break
        if not runs_library(frame):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _is_callback_of_collector(code: CodeType) -> bool:
    return any(getattr(callback, "__code__", None) is code for callback in gc.callbacks)


def _draws() -> tuple[object, ...]:
    """The states of the process-wide generators that tensors do not use."""
    kind, words, at, *_ = tuple[Any, ...](np.random.get_state())
    return random.getstate(), kind, words.tobytes(), at
