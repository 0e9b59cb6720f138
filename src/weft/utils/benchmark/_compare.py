"""Tables of measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import Enum

from weft.errors import ValueRangeError
from weft.utils.benchmark._measurement import Measurement, select_unit, trim_sigfig, unit_to_english

_BOLD, _END = "\033[1m", "\033[0m"
_BEST, _GOOD, _BAD, _VERY_BAD = "\033[92m", "\033[34m", "\033[2m\033[91m", "\033[31m"

Row = tuple[int, str | None, str]
"""The threads, the environment and the name of a row."""


class Colorize(Enum):
    """What the colours of a table compare: nothing, the times of a column, or those of a row."""

    NONE = "none"
    COLUMNWISE = "columnwise"
    ROWWISE = "rowwise"


def _colored(text: str, time: float, best: float) -> str:
    if time <= best * 1.01 or time <= best + 100e-9:
        return f"{_BEST}{_BOLD}{text}{_END * 2}"
    if time <= best * 1.1:
        return f"{_GOOD}{_BOLD}{text}{_END * 2}"
    if time >= best * 5:
        return f"{_VERY_BAD}{_BOLD}{text}{_END * 2}"
    return f"{_BAD}{text}{_END * 2}" if time >= best * 2 else text


class Compare:
    """A table of measurements: one for each label, with a column for each description.

    Measurements of equal tasks are merged. Rows are named by `sub_label`, or else by the statement.
    """

    def __init__(self, results: Iterable[Measurement]) -> None:
        self._results: list[Measurement] = []
        self._trimmed = False
        self._colorize = Colorize.NONE
        self._highlight = False
        self.extend_results(results)

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Add measurements; `ValueError` for anything else, and then none is added."""
        added = list(results)
        for result in added:
            if not isinstance(result, Measurement):
                raise ValueRangeError(f"Expected an instance of `Measurement`, got {type(result)} instead.")
        self._results += added

    def trim_significant_figures(self) -> None:
        """Print only as many figures as the spread of the times leaves."""
        self._trimmed = True

    def colorize(self, rowwise: bool = False) -> None:
        """Colour the times by how they compare with the best of their column, or of their row."""
        self._colorize = Colorize.ROWWISE if rowwise else Colorize.COLUMNWISE

    def highlight_warnings(self) -> None:
        """Mark times that are spread widely."""
        self._highlight = True

    def print(self) -> None:
        """Print the tables."""
        print(str(self))

    def __str__(self) -> str:
        by_label: dict[str | None, list[Measurement]] = {}
        for result in Measurement.merge(self._results):
            by_label.setdefault(result.label, []).append(result)
        return "\n".join(
            _Table(results, self._trimmed, self._highlight, self._colorize).render() for results in by_label.values()
        )


class _Column:
    """The form of the times of one column."""

    def __init__(self, results: Sequence[Measurement], scale: float, trimmed: bool, highlight: bool) -> None:
        self._scale, self._trimmed = scale, trimmed
        self.marks = highlight and any(result.has_warnings for result in results)
        digits = [math.ceil(math.log10(result.median / scale)) for result in results]
        figures = [max(result.significant_figures - n, 0) for result, n in zip(results, digits, strict=True)]
        self._decimals = min(figures) if trimmed else 1
        self._width = max(digits) + self._decimals + (self._decimals > 0)

    def text(self, result: Measurement | None) -> str:
        """The median of a measurement; blanks for None."""
        if result is None:
            return " " * (self._width + 7 * self.marks)
        time = result.median / self._scale
        if self._trimmed:
            time = trim_sigfig(time, result.significant_figures)
        mark = f" (! {result.iqr / result.median * 100:.0f}%)" if self.marks and result.has_warnings else ""
        return f"{time:>{self._width}.{self._decimals}f}{mark:>{7 * self.marks}}"


class _Table:
    """The table of the measurements of one label."""

    def __init__(self, results: Sequence[Measurement], trimmed: bool, highlight: bool, colorize: Colorize) -> None:
        self._label = results[0].label or ""
        self._colorize = colorize
        self._unit, self._scale = select_unit(min(result.median for result in results))
        self._cells = {(_row_of(result), result.description): result for result in results}
        self._rows = sorted(dict.fromkeys(map(_row_of, results)), key=lambda row: (row[0], row[1] or ""))
        self._columns = {
            name: _Column([result for result in results if result.description == name], self._scale, trimmed, highlight)
            for name in dict.fromkeys(result.description for result in results)
        }

    def render(self) -> str:
        """The table as text."""
        header = ["", *(name or "" for name in self._columns)]
        texts = [
            [name, *(column.text(self._cells.get((row, key))) for key, column in self._columns.items())]
            for name, row in zip(self._names(), self._rows, strict=True)
        ]
        widths = [max(map(len, column)) for column in zip(header, *texts, strict=True)]
        first = "  |  ".join(text.center(width) for text, width in zip(header, widths, strict=True))
        lines = [f"[{f' {self._label} '.center(len(first) - 2, '-')}]", first]
        threads = None
        for row, row_texts in zip(self._rows, texts, strict=True):
            if row[0] != threads:
                threads = row[0]
                lines.append(f"{threads} threads: ".ljust(len(first), "-"))
            lines.append("  |  ".join(self._aligned(row, row_texts, widths)))
        footer = f"Times are in {unit_to_english(self._unit)}s ({self._unit})."
        marks = "(! XX%) Measurement has high variance, where XX is the IQR / median * 100.\n"
        has_marks = any(column.marks for column in self._columns.values())
        return "\n".join([*lines, "", footer, marks if has_marks else ""])

    def _names(self) -> list[str]:
        """The names of the rows; where environments differ, the first row of each has it, too."""
        environments = {env for _, env, _ in self._rows}
        width = 4 + (max(len(str(env)) for env in environments) if len(environments) > 1 else 0)
        names, previous = [], None
        for threads, env, name in self._rows:
            is_first = len(environments) > 1 and (threads, env) != previous
            names.append("  " + (f"({env})" if is_first else "").ljust(width) + name)
            previous = (threads, env)
        return names

    def _aligned(self, row: Row, texts: Sequence[str], widths: Sequence[int]) -> list[str]:
        """The parts of a line, padded and coloured."""
        aligned = [texts[0].ljust(widths[0])]
        for name, text, width in zip(self._columns, texts[1:], widths[1:], strict=True):
            result, best = self._cells.get((row, name)), self._best(row, name)
            text = text.center(width)
            aligned.append(text if result is None or best is None else _colored(text, result.median, best))
        return aligned

    def _best(self, row: Row, column: str | None) -> float | None:
        """The time with which one of this row and column is compared, if any."""
        if self._colorize is Colorize.NONE:
            return None
        times = [
            result.median
            for (own, name), result in self._cells.items()
            if (own == row if self._colorize is Colorize.ROWWISE else own[0] == row[0] and name == column)
        ]
        return min(times, default=None)


def _row_of(result: Measurement) -> Row:
    return result.num_threads, result.env, result.as_row_name
