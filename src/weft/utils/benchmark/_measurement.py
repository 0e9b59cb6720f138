"""What was measured: the statement, its times, and their statistics."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft._base.types import AttributeValue

_MOST_FIGURES = 4  # this and the spreads are PyTorch's
_LEAST_INTERVAL = 25e-9  # seconds: no clock is better
_NOTABLE_SPREAD = 0.1
_LARGE_SPREAD = 0.25


@dataclass(frozen=True)
class TaskSpec:
    """What a `Timer` was made of, without its variables."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The labels, or the statement."""
        if self.label is None and "\n" in self.stmt:
            lead = f" ({self.sub_label})" if self.sub_label else ""
            return f"stmt:{lead}\n{textwrap.indent(self.stmt, '  ')}"
        name = self.stmt if self.label is None else self.label
        return f"{name}: {self.sub_label}" if self.sub_label else name

    def setup_str(self) -> str:
        """The setup, if there is one."""
        if self.setup in ("", "pass"):
            return ""
        return f"setup:\n{textwrap.indent(self.setup, '  ')}" if "\n" in self.setup else f"setup: {self.setup}"

    def summarize(self) -> str:
        """Title, description and setup, on lines of their own."""
        parts = [part for part in (self.title, self.description or "", self.setup_str()) if part]
        return "\n".join(f"{part}\n" if "\n" in part else part for part in parts)


@dataclass(repr=False)
class Measurement:
    """Times of a statement: `raw_times` are seconds of `number_per_run` runs each.

    The fields of `task_spec` are attributes, too.
    """

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    def __getattr__(self, name: str) -> AttributeValue:
        if name in TaskSpec.__dataclass_fields__:
            return getattr(self.task_spec, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def times(self) -> list[float]:
        """Seconds of one run, for each measurement."""
        return [time / self.number_per_run for time in self.raw_times]

    @property
    def median(self) -> float:
        """The median of `times`."""
        return float(np.median(self.times))

    @property
    def mean(self) -> float:
        """The mean of `times`."""
        return float(np.mean(self.times))

    @property
    def _quartiles(self) -> tuple[float, float]:
        low, high = np.quantile(self.times, [0.25, 0.75])
        return float(low), float(high)

    @property
    def iqr(self) -> float:
        """The interquartile range: the spread of the middle half of `times`."""
        low, high = self._quartiles
        return high - low

    def meets_confidence(self, threshold: float = _NOTABLE_SPREAD) -> bool:
        """Whether the interquartile range is below this part of the median."""
        return self.iqr / self.median < threshold

    @property
    def significant_figures(self) -> int:
        """How many figures of the median the spread leaves: 1 to 4, from a 90 % interval around the middle half."""
        count = len(self.raw_times)
        middle = sorted(self.times)[count // 4 : math.ceil(3 * count / 4)]
        interval = max(1.645 * float(np.std(middle)) / math.sqrt(len(middle)), _LEAST_INTERVAL)
        return min(max(math.floor(math.log10(self.median / interval)), 1), _MOST_FIGURES)

    @property
    def has_warnings(self) -> bool:
        """Whether the times are so spread that the printed measurement has a warning."""
        return bool(self._warning())

    def _warning(self) -> str:
        if self.meets_confidence(_NOTABLE_SPREAD):
            return ""
        spread = self.iqr / self.median * 100
        cause = (
            "This could indicate system fluctuation."
            if self.meets_confidence(_LARGE_SPREAD)
            else "This suggests significant environmental influence."
        )
        return f"  WARNING: Interquartile range is {spread:.1f}% of the median measurement.\n           {cause}"

    @property
    def title(self) -> str:
        """The labels, or the statement."""
        return self.task_spec.title

    @property
    def as_row_name(self) -> str:
        """What names the row of a table: the second label, or the statement."""
        return self.sub_label or self.stmt or "[Unknown]"

    def __repr__(self) -> str:
        count, (unit, scale) = len(self.raw_times), select_unit(self.median)
        low, high = self._quartiles
        lines = [object.__repr__(self), self.task_spec.summarize()]
        lines.append(f"  {'Median: ' if count > 1 else ''}{self.median / scale:.2f} {unit}")
        if count > 3:
            lines.append(f"  IQR:    {self.iqr / scale:.2f} {unit} ({low / scale:.2f} to {high / scale:.2f})")
        measurements = f"{count} measurement{'s' if count > 1 else ''}"
        runs = f"{self.number_per_run} runs {'per measurement,' if count > 1 else ','}"
        lines.append(f"  {measurements}, {runs} {self.num_threads} thread{'s' if self.num_threads > 1 else ''}")
        return "\n".join([*lines, self._warning()]).strip()

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One measurement for each task, with the times of single runs of all that have it."""
        times: dict[TaskSpec, list[float]] = {}
        for measurement in measurements:
            times.setdefault(measurement.task_spec, []).extend(measurement.times)
        return [Measurement(1, runs, task) for task, runs in times.items()]


_UNITS = {-3: ("ns", 1e-9), -2: ("us", 1e-6), -1: ("ms", 1e-3)}
_WORDS = {"ns": "nanosecond", "us": "microsecond", "ms": "millisecond", "s": "second"}


def select_unit(t: float) -> tuple[str, float]:
    """The unit in which a time is printed, and its seconds: `("us", 1e-6)` for 2e-5."""
    return _UNITS.get(int(math.log10(t) // 3), ("s", 1))


def unit_to_english(u: str) -> str:
    """The word for a unit of `select_unit`."""
    return _WORDS[u]


def trim_sigfig(x: float, n: int) -> float:
    """A number rounded to `n` significant figures."""
    scale = 10.0 ** (math.ceil(math.log10(abs(x))) - n)
    return float(round(x / scale) * scale)
