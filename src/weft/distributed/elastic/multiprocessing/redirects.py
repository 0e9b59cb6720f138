"""Redirection of a process's own standard streams, at the level of descriptors, so that it also holds for libraries."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager

from weft.errors import ValueRangeError

_NUMBERS = {"stdout": 1, "stderr": 2}
_LIBC = ctypes.CDLL(None)


def send(std: str, to_file: str) -> None:
    """Redirect `stdout` or `stderr` to a file, which is truncated first."""
    _flush(std)
    with open(to_file, "wb") as file:
        os.dup2(file.fileno(), _NUMBERS[std])


def _flush(std: str) -> None:
    """Write what Python and the C library hold back, so that it goes where the stream led when it was printed."""
    getattr(sys, std).flush()
    _LIBC.fflush(None)


@contextmanager
def redirect(std: str, to_file: str) -> Generator[None]:
    """Redirect `stdout` or `stderr` to a file within a block. `ValueError` for another stream."""
    if std not in _NUMBERS:
        raise ValueRangeError(f"unknown standard stream <{std}>, must be one of {set(_NUMBERS)}")
    before = os.dup(_NUMBERS[std])
    try:
        send(std, to_file)
        yield
    finally:
        _flush(std)
        os.dup2(before, _NUMBERS[std])
        os.close(before)


def redirect_stdout(to_file: str) -> AbstractContextManager[None]:
    """Redirect standard output to a file within a block."""
    return redirect("stdout", to_file)


def redirect_stderr(to_file: str) -> AbstractContextManager[None]:
    """Redirect standard error to a file within a block."""
    return redirect("stderr", to_file)
