"""How a distributed tensor lies over its mesh, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from textwrap import wrap

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from weft.distributed.tensor._dtensor import DTensor
from weft.errors import ShapeError

Parts = tuple[tuple[int, int], ...]  # for each dim, where a part begins, and its size
Holders = dict[Parts, list[int]]  # the ranks that have each part

_WIDTH = 80
_CELL = 22  # ranks of a cell continue on a new line after so many characters
_COLORS = ("cyan", "green", "magenta", "yellow", "blue", "red")


def visualize_sharding(dtensor: DTensor, header: str = "", use_rich: bool = False) -> None:
    """Print which ranks have which part of a tensor of one to three dims: one table, or one for each part of the first.

    The first rank of the mesh prints, at most 80 columns wide, and the others nothing. Nothing is printed for a tensor
    without elements. `use_rich` draws lines, and gives each part a colour where there are some. `RuntimeError` for
    tensors of other numbers of dims.
    """
    if not dtensor.numel():
        return
    if dtensor.ndim not in (1, 2, 3):
        raise ShapeError(f"visualize_sharding shows tensors of 1 to 3 dims, but got one of {dtensor.ndim}")
    if any(dtensor.device_mesh.coordinate or (-1,)):
        return
    console = Console(width=_WIDTH)
    if header:
        console.print(header, markup=False, highlight=False)
    holders, empty = _holders(dtensor)
    for title, of_table in _tables(holders):
        _print(console, title, of_table, dtensor.device_mesh.device_type, use_rich)
    if empty:
        console.print(f"no elements: {_ranks(dtensor.device_mesh.device_type, empty)}", markup=False, highlight=False)


def _holders(dtensor: DTensor) -> tuple[Holders, list[int]]:
    """The ranks that have each part, with three dims for all tensors, and the ranks whose part is empty."""
    mesh, sharding = dtensor.device_mesh, dtensor.sharding
    holders: Holders = {}
    empty: list[int] = []
    for place in product(*map(range, mesh.shape)):
        rank = int(mesh.mesh._host()[place])
        parts = sharding.parts_at(place)
        if not all(size for _, size in parts):
            empty.append(rank)
            continue
        slices = parts[:1] if len(parts) == 3 else [(0, 1)]
        columns = parts[-1:] if len(parts) > 1 else [(0, 1)]
        rows = parts[-2:-1] if len(parts) > 1 else parts
        holders.setdefault((*slices, *rows, *columns), []).append(rank)
    return holders, empty


def _tables(holders: Holders) -> Iterator[tuple[str, Holders]]:
    """The parts of each slice, with what the slice is called."""
    slices = sorted({parts[0] for parts in holders})
    for own in slices:
        title = _span("Slice", own) if len(slices) > 1 else ""
        yield title, {parts[1:]: ranks for parts, ranks in holders.items() if parts[0] == own}


def _print(console: Console, title: str, holders: Holders, device: str, use_rich: bool) -> None:
    rows, columns = (sorted({parts[at] for parts in holders}) for at in (0, 1))
    cells = {parts: "\n".join(wrap(_ranks(device, ranks), _CELL)) for parts, ranks in holders.items()}
    widths = [max(_width(_span("Col", c)), *(_width(cells.get((r, c), "")) for r in rows)) for c in columns]
    label = max(_width(_span("Row", row)) for row in rows)
    for some in _fitting(widths, _WIDTH - label - 4):
        table = Table(title=title or None, title_justify="left", box=box.SQUARE if use_rich else box.SIMPLE_HEAD)
        table.show_lines = use_rich
        table.add_column("", no_wrap=True)
        for at in some:
            table.add_column(_span("Col", columns[at]), no_wrap=True)
        for y, row in enumerate(rows):
            colored = [Text(cells.get((row, columns[x]), ""), _color(y * len(columns) + x, use_rich)) for x in some]
            table.add_row(_span("Row", row), *colored)
        console.print(table)


def _fitting(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """The columns, as many together as there is room for; each needs three characters beside its width."""
    some: list[int] = []
    for at, width in enumerate(widths):
        if some and sum(widths[i] + 3 for i in some) + width + 3 > room:
            yield some
            some = []
        some.append(at)
    yield some


def _color(number: int, use_rich: bool) -> str:
    return _COLORS[number % len(_COLORS)] if use_rich else ""


def _span(word: str, part: tuple[int, int]) -> str:
    start, size = part
    return f"{word} {start}-{start + size - 1}"


def _ranks(device: str, ranks: Sequence[int]) -> str:
    return f"{device}:{', '.join(map(str, ranks))}"


def _width(text: str) -> int:
    return max(map(len, text.splitlines()), default=0)
