"""Measuring a statement."""

from __future__ import annotations

import ast
import textwrap
import timeit
from collections.abc import Callable
from enum import Enum
from statistics import median
from typing import Any, NoReturn

import weft
from weft import accelerator
from weft._base.device import CPU
from weft._base.types import Arg, Kwargs
from weft._devices.streams import synchronize
from weft._lazy.flushing import flush_pending
from weft.errors import UnsupportedCallError, ValueRangeError
from weft.utils.benchmark._measurement import Measurement, TaskSpec

_MOST_RUNS = 2**31 - 1
_LEAST_TIME = 1e-9  # seconds, so that nothing is divided by zero

Callback = Callable[[int, float], Any]


def timer() -> float:
    """Seconds of a clock, after all devices have finished."""
    synchronize(CPU)
    if accelerator.is_available():
        accelerator.synchronize()
    return timeit.default_timer()


class Language(Enum):
    """The language of a statement."""

    PYTHON = 0
    CPP = 1


class _Keeping(ast.NodeTransformer):
    """Keeps the values of expressions that are statements until the end of the run: nobody else would need them."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        return ast.Expr(ast.Call(ast.Name("_keep", ast.Load()), [node.value], []))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return node

    visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = visit_FunctionDef  # pyright: ignore


def _computing(stmt: str) -> str:
    """The statement, followed by the computation of what it has recorded, unused values of expressions included."""
    return f"{ast.unparse(_Keeping().visit(ast.parse(stmt)))}\n_flush()"


def _dedented(text: str) -> str:
    return textwrap.dedent(text).removeprefix("\n").rstrip()


class Timer:
    """Measures the time of a statement, given as text.

    Each run is like a step of a program: what it has recorded is computed (asynchronously), with the values of
    expressions that nothing uses; and a measurement ends when the devices have finished. So the times are those of
    recording, looking the program up, and running it; the first runs, which may compile, are not counted.

    `setup` is executed once before each measurement, `globals` are the variables, among which `torch` is this package.
    `label`, `sub_label`, `description` and `env` are for printed results. `num_threads` is noted there and has no
    effect: XLA's pool of threads cannot be changed.
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: Kwargs | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: object = "python",
    ) -> None:
        if not isinstance(stmt, str):
            raise ValueRangeError(f"Timer: stmt must be the text of a statement, not {type(stmt).__name__}: {stmt!r}")
        if global_setup or language not in ("python", "py", Language.PYTHON):
            raise ValueRangeError(
                "Timer: only statements in Python can be measured; leave language and global_setup out"
            )
        stmt, setup = _dedented(stmt), _dedented(setup)
        self._task_spec = TaskSpec(stmt, setup, "", label, sub_label, description, env, num_threads)
        kept: list[Any] = []

        def flush() -> None:
            flush_pending()
            kept.clear()

        names = {"torch": weft, **(globals or {}), "_flush": flush, "_keep": kept.append}
        self._timer = timeit.Timer(_computing(stmt), setup, timer, names)

    def _timeit(self, number: int) -> float:
        return max(self._timer.timeit(number), _LEAST_TIME)

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """One measurement of so many runs, after a hundredth as many (at least 2) that are not counted."""
        self._timeit(max(number // 100, 2))
        return Measurement(number, [self._timeit(number)], self._task_spec)

    def blocked_autorange(self, callback: Callback | None = None, min_run_time: float = 0.2) -> Measurement:
        """Measurements until they have taken `min_run_time` seconds.

        Each is of so many runs that reading the clock takes no more than a ten thousandth of the time.
        `callback(number, seconds)` is called after each.
        """
        number = self._block_size(min_run_time)
        return self._measured(number, callback, lambda times: sum(times) >= min_run_time)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callback | None = None,
    ) -> Measurement:
        """More than three measurements, until their interquartile range is below this part of the median.

        They take `min_run_time` seconds at least, and end when they have taken `max_run_time`.
        """
        number = self._block_size(0.05)

        def is_enough(times: list[float]) -> bool:
            total = sum(times)
            steady = len(times) > 3 and Measurement(number, times, self._task_spec).meets_confidence(threshold)
            return total > max_run_time or (steady and total >= min_run_time)

        return self._measured(number, callback, is_enough)

    def collect_callgrind(self, *args: Arg, **kwargs: Arg) -> NoReturn:
        """Raises `NotImplementedError`, which says what to use instead."""
        raise UnsupportedCallError(
            "Timer.collect_callgrind: instructions are not counted; blocked_autorange() measures times, "
            "weft.utils.flop_counter counts operations, and weft.profiler traces what runs"
        )

    def _measured(
        self, number: int, callback: Callback | None, is_enough: Callable[[list[float]], bool]
    ) -> Measurement:
        times: list[float] = []
        while not times or not is_enough(times):
            times.append(self._timeit(number))
            if callback is not None:
                callback(number, times[-1])
        return Measurement(number, times, self._task_spec)

    def _block_size(self, min_run_time: float) -> int:
        """The number of runs of a measurement: a power of 10 that makes the clock's own time negligible."""
        overhead = median(self._timeit(0) for _ in range(5))
        number = 1
        while number * 10 <= _MOST_RUNS:
            time = self._timeit(number)
            if time > min_run_time or (overhead <= 1e-4 * time and time >= min_run_time / 1000):
                break
            number *= 10
        return number
