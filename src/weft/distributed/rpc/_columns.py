"""Tables of figures."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.table import Table

_WIDEST = 10_000  # characters of a line of text, so that none is broken


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table without lines; names of columns that begin with a space are of numbers, which stand to the right."""
    shown = Table(box=None, pad_edge=False)
    for name in columns:
        shown.add_column(name.strip(), justify="right" if name.startswith(" ") else "left", no_wrap=True)
    for row in rows:
        shown.add_row(*row)
    return shown


def text(shown: RenderableType) -> str:
    """The same as plain lines."""
    console = Console(file=io.StringIO(), width=_WIDEST, color_system=None, markup=False, emoji=False)
    with console.capture() as capture:
        console.print(shown)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def amount(count: float) -> str:
    """A number of bytes."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
