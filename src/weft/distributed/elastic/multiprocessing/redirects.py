"""Sending a process's own standard streams to files, below Python, so that its libraries' output goes there too."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from weft.errors import ValueRangeError

_NUMBERS = {"stdout": 1, "stderr": 2}


def send(std: str, to_file: str) -> None:
    """Send `stdout` or `stderr` to a file, which is emptied first."""
    getattr(sys, std).flush()
    with open(to_file, "wb") as file:
        os.dup2(file.fileno(), _NUMBERS[std])


@contextmanager
def redirect(std: str, to_file: str) -> Iterator[None]:
    """Send `stdout` or `stderr` to a file for one block. `ValueError` for another stream."""
    if std not in _NUMBERS:
        raise ValueRangeError(f"unknown standard stream <{std}>, must be one of {set(_NUMBERS)}")
    before = os.dup(_NUMBERS[std])
    try:
        send(std, to_file)
        yield
    finally:
        getattr(sys, std).flush()
        os.dup2(before, _NUMBERS[std])
        os.close(before)


def redirect_stdout(to_file: str) -> AbstractContextManager[None]:
    """Send standard output to a file for one block."""
    return redirect("stdout", to_file)


def redirect_stderr(to_file: str) -> AbstractContextManager[None]:
    """Send standard error to a file for one block."""
    return redirect("stderr", to_file)
