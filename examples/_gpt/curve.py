"""Plots of a run's losses, as text and as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

_BRAILLE = 0x2800  # the character without dots
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # bits of the dots by row and column


def drawn(losses: Sequence[float], width: int = 64, height: int = 8) -> str:
    """A line chart of braille characters; each column of dots shows the mean of some steps."""
    means = [part.mean() for part in np.array_split(np.asarray(losses), min(2 * width, len(losses)))]
    low, high = min(means), max(means)
    last = 4 * height - 1
    rows = [round((high - mean) / ((high - low) or 1) * last) for mean in means]
    cells = np.full((height, width), _BRAILLE)
    for column, (before, row) in enumerate(zip([rows[0], *rows], rows, strict=False)):
        for y in range(min(before, row), max(before, row) + 1):
            cells[y // 4, column // 2] |= _DOTS[y % 4][column % 2]
    lines = ["".join(map(chr, line)).rstrip(chr(_BRAILLE)) for line in cells]
    labels = [f"{high:.2f}", *[""] * (height - 2), f"{low:.2f}"]
    picture = [f"{label:>6} ┤{line}" for label, line in zip(labels, lines, strict=True)]
    return "\n".join([*picture, f"{'loss':>6} └ step 1 to {len(losses)}"])


def plot(losses: Sequence[float], validation: Sequence[tuple[int, float]], file: Path) -> None:
    """Write the losses of all steps and of validation as PNG; `ImportError` without matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(range(1, len(losses) + 1), losses, linewidth=0.8, label="training")
    axes.plot(*zip(*validation, strict=True), marker="o", label="validation")
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats per character)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=120)
