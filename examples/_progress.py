"""A progress bar."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from rich.console import Console
from rich.progress import track

T = TypeVar("T")


def progress(items: Iterable[T], description: str) -> Iterable[T]:
    """`items`, with a progress bar on stderr while it is iterated; without one if stderr is not a terminal."""
    console = Console(stderr=True)
    return track(items, description, console=console, transient=True, disable=not console.is_terminal)
