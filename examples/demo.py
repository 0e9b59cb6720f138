"""Two processes train a GPT, one of them is killed, and the loss is still that of a single process (`make demo`).

    python examples/demo.py            # some minutes on two cores; options are those of train_gpt.py

The training is `train_gpt.py`, which has no code for this. `weft run` starts it in two processes. In the middle rank 1
gets SIGKILL. The launcher restarts both processes, and they continue from the last checkpoint.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import weft as torch
from _gpt.curve import drawn
from _gpt.options import options
from train_gpt import CHECKPOINT, PROCESSES, SAMPLE

TRAIN = str(Path(__file__).with_name("train_gpt.py"))
LAUNCHER = ["-m", "weft.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "3"]
SHARE = 0.4  # of all steps: rank 1 is killed after the first checkpoint from there on


def main() -> int:
    """Train in two processes and in one, and compare; returns the exit status."""
    given = options()
    two, one = given.out / "two", given.out / "one"
    for folder in (two, one):
        shutil.rmtree(folder, ignore_errors=True)

    say("two processes train, each on half of every batch")
    with started([*LAUNCHER, TRAIN, *sys.argv[1:], "--out", str(two)]) as job:
        killed = kill_a_worker(job, two, SHARE * given.steps)
    if not killed:
        say(f"the run of two processes has ended with status {job.returncode}, before a worker could be killed")
        return job.returncode or 1
    if not job.returncode:
        say("one process trains, on the same batches")
        with started([TRAIN, *sys.argv[1:], "--out", str(one)]) as job:
            pass
    if not job.returncode:
        compare(two, one)
    return job.returncode


def say(text: str) -> None:
    """Print a line on stderr, over the progress bar of a process."""
    start = "\r\x1b[2K" if sys.stderr.isatty() else ""
    print(f"{start}demo: {text}", file=sys.stderr, flush=True)


@contextmanager
def started(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process, which has ended after the block. Its stdout is discarded; `compare` shows the results."""
    job = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)
    try:
        yield job
    except Exception:
        job.terminate()
        raise
    finally:
        job.wait()  # in a terminal, Ctrl-C also reaches the process


def kill_a_worker(job: subprocess.Popen[bytes], folder: Path, steps: float) -> bool:
    """Kill rank 1 soon after the first checkpoint at `steps` steps or more; False if the job ends before."""
    written, last = 0, time.monotonic()
    while job.poll() is None:
        time.sleep(0.05)
        file = folder / CHECKPOINT
        if not file.exists() or file.stat().st_mtime_ns == written:
            continue
        written, before, last = file.stat().st_mtime_ns, last, time.monotonic()
        done = len(torch.load(file)["losses"])
        if done >= steps:
            time.sleep((last - before) / 3)
            process = int((folder / PROCESSES).read_text().split()[1])
            say(f"kill -9 {process}: rank 1 dies, some steps behind the checkpoint of step {done}")
            os.kill(process, signal.SIGKILL)
            return True
    return False


def compare(two: Path, one: Path) -> None:
    """Show the results of both runs, and by how much their losses differ."""
    losses = [torch.load(folder / CHECKPOINT)["losses"] for folder in (two, one)]
    for text, curve in zip(("two processes, one of them killed", "one process"), losses, strict=True):
        print(f"\n{text}:\n{drawn(curve)}")
    print(f"\n{(two / SAMPLE).read_text('utf-8')}")
    apart = np.abs(np.subtract(*losses))
    early, late = max(1, len(apart) // 50), max(1, len(apart) // 10)
    print(f"largest difference in the first {early} steps: {apart[:early].max():.1g}, in any step: {apart.max():.2g}")
    print("mean loss of the last {}: {:.4f} and {:.4f}".format(late, *(np.mean(curve[-late:]) for curve in losses)))
    print(f"everything is in {two.parent}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
