"""Tables of numbers as text, and the argument of the commands that show them again and again."""

from __future__ import annotations

import io
from argparse import ArgumentTypeError
from collections.abc import Iterable, Sequence
from contextlib import suppress

from rich.console import Console, RenderableType
from rich.table import Table

_WIDEST = 10_000  # characters in a line, so that lines are never wrapped


def table(columns: Sequence[str], rows: Iterable[Sequence[RenderableType]]) -> Table:
    """A table without lines. Columns whose names begin with a space hold numbers, and are right-aligned."""
    grid = Table(box=None, pad_edge=False)
    for name in columns:
        grid.add_column(name.strip(), justify="right" if name.startswith(" ") else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*row)
    return grid


def text(content: RenderableType) -> str:
    """A renderable as plain lines."""
    console = Console(file=io.StringIO(), width=_WIDEST, color_system=None, markup=False, emoji=False)
    with console.capture() as capture:
        console.print(content)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def amount(count: float) -> str:
    """A number of bytes, as a short text with a unit."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def interval_seconds(argument: str) -> float:
    """The seconds between two looks, as an argument of a command."""
    with suppress(ValueError):
        if 0.01 <= (seconds := float(argument)) <= 3600:
            return seconds
    raise ArgumentTypeError(f"must be from 0.01 to 3600 seconds, got {argument!r}")
