"""How a distributed tensor lies over its mesh, as a table."""

from __future__ import annotations

from itertools import product

from rich.console import Console
from rich.table import Table

from weft.distributed.tensor._dtensor import DTensor
from weft.errors import ShapeError


def visualize_sharding(dtensor: DTensor, header: str = "") -> None:
    """Print which ranks have which part of a tensor of one or two dims. Nothing is printed for an empty tensor.

    Every rank prints the same. `RuntimeError` for tensors of other numbers of dims.
    """
    if not dtensor.numel():
        return
    if dtensor.ndim not in (1, 2):
        raise ShapeError(f"visualize_sharding is only implemented for 1D or 2D DTensor, not for {dtensor.ndim} dims")
    holders: dict[tuple[tuple[int, int], ...], list[int]] = {}
    mesh = dtensor.device_mesh
    ranks = mesh.mesh.numpy()
    for place in product(*map(range, mesh.shape)):
        parts = tuple(dtensor._sharding.parts_at(place))
        holders.setdefault(parts, []).append(int(ranks[place]))
    _print(dtensor, holders, header)


def _print(dtensor: DTensor, holders: dict[tuple[tuple[int, int], ...], list[int]], header: str) -> None:
    filled = [parts for parts in holders if all(size for _, size in parts)]
    rows = sorted({parts[0] for parts in filled}) if dtensor.ndim == 2 else [(0, 1)]
    columns = sorted({parts[-1] for parts in filled})
    table = Table(title=header or None, show_lines=True)
    table.add_column("")
    for start, size in columns:
        table.add_column(f"Col {start}-{start + size - 1}")
    for row in rows:
        cells = [holders.get((row, column) if dtensor.ndim == 2 else (column,), []) for column in columns]
        label = f"Row {row[0]}-{row[0] + row[1] - 1}"
        table.add_row(
            label, *[", ".join(f"{dtensor.device_mesh.device_type}:{rank}" for rank in cell) for cell in cells]
        )
    Console().print(table)
