"""The figures of the simulation as a table and a plot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.scale.simulation import Load


def table(figures: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The figures as a table of Markdown."""
    yield "| event | n | s | messages | bytes | messages, bytes of the first | requests, bytes of the store |"
    yield "|---|---|---|---|---|---|---|"
    for event, by_size in figures.items():
        for size, row in sorted(by_size.items(), key=lambda item: int(item[0])):
            others, special = Load(**row["others"]), Load(**row["special"])
            yield (
                f"| {event} | {int(size):,} | {others.seconds:.2f} | {others.median_messages:.0f}, "
                f"{others.most_messages} | {others.median_bytes:,.0f}, {others.most_bytes:,} | "
                f"{special.most_messages:,}, {special.most_bytes:,} | "
                f"{others.store_messages // 2:,}, {others.store_bytes:,} |"
            )


def plot(figures: dict[str, dict[str, Any]], path: Path) -> None:
    """Time, and messages of a host, over the number of hosts."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "scale"
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    for event, by_size in figures.items():
        rows = sorted((int(size), Load(**row["others"]), Load(**row["special"])) for size, row in by_size.items())
        sizes = [size for size, *_ in rows]
        (line,) = panels[0].plot(sizes, [others.seconds for _, others, _ in rows], marker=".", label=event)
        panels[1].plot(sizes, [others.most_messages for _, others, _ in rows], marker=".", color=line.get_color())
        panels[1].plot(sizes, [special.most_messages for *_, special in rows], ":", color=line.get_color())
    for panel, title in zip(
        panels, ("simulated time, s", "messages of the busiest host (dotted: leader, rank 0)"), strict=True
    ):
        panel.set(xscale="log", yscale="log", xlabel="agents or workers", title=title)
        panel.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, fontsize="small")
    figure.savefig(path, metadata={"Date": None})
