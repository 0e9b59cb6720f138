"""The progress of a run, on stderr."""

from __future__ import annotations

import statistics
import time
from collections import deque
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import weft as torch
from _gpt.run import Run

_EVERY = 10  # steps between the lines that replace the progress bar if stderr is not a terminal


class Report:
    """A progress bar on a terminal, lines elsewhere; in both cases also lines about compilations and checkpoints.

    With `quiet`, nothing is shown: only one of several processes reports.
    """

    def __init__(self, run: Run, *, quiet: bool) -> None:
        self._run = run
        self._tokens = run.settings["batch"] * run.settings["context"]
        self._console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True, quiet=quiet)
        self._progress = Progress(
            TextColumn("step {task.completed}/{task.total}"),
            BarColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=quiet or not self._console.is_terminal,
        )
        self._bar = self._progress.add_task("compiling", total=run.settings["steps"], completed=run.step)
        self._seconds: deque[float] = deque(maxlen=50)  # of the last steps
        self._start = self._last = time.perf_counter()
        self._compiled = 0

    def __enter__(self) -> Report:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Print a permanent line."""
        self._console.print(text)

    def stepped(self) -> None:
        """Call this after each step."""
        self.say_compilations()
        now = time.perf_counter()
        self._seconds.append(now - self._last)
        self._last = now
        # The median leaves out steps that compiled or waited for a checkpoint.
        rate = self._tokens / statistics.median(self._seconds)
        text = f"loss {self._run.losses[-1]:.3f}  {rate:,.0f} tokens/s"
        self._progress.update(self._bar, completed=self._run.step, description=text)
        if self._progress.disable and (self._run.step % _EVERY == 0 or self._run.finished):
            self.say(f"step {self._run.step}/{self._run.settings['steps']}  {text}")

    def say_compilations(self) -> None:
        """Print a line for each compilation since the last call."""
        log = torch.explain()
        for entry in log[self._compiled :]:
            line = f"compiled {entry.operators} operators in {entry.seconds:.1f} s for {entry.site}: {entry.cause}"
            self.say(line.replace(f"{Path.cwd()}/", ""))
        self._compiled = len(log)

    def checkpointed(self) -> None:
        """Call this after a checkpoint."""
        measured = f"  validation loss {self._run.validation[-1][1]:.3f}" if self._run.validation else ""
        self.say(f"checkpoint at step {self._run.step}{measured}")
        self._last = time.perf_counter()

    def ended(self) -> None:
        """Call this after the last step of this process."""
        log = torch.explain()
        self.say(
            f"trained to step {self._run.step} in {time.perf_counter() - self._start:.1f} s, "
            f"{sum(entry.seconds for entry in log):.1f} s of it for {len(log)} compilations"
        )
