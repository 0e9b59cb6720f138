"""What the tests run in other processes, and how they wait for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import is_gone, until

DEADLINE = 20.0  # seconds


def line_of(path):
    """The whole line that another process writes to a file."""
    return until(lambda: path.exists() and (text := path.read_text()).endswith("\n") and text, path).strip()


def await_end(pid):
    until(lambda: is_gone(pid), f"the end of process {pid}")


# --- functions ---


def add(a, b):
    return a + b


def env(name):
    return os.environ.get(name)


def zeros(count):
    return bytes(count)


def say(text):
    print(text)
    print(f"{text} err", file=sys.stderr)


def fail(text):
    raise ValueError(text)


class Unpicklable(Exception):
    def __init__(self, lock):
        super().__init__("held")
        self.lock = lock

    def __reduce__(self):
        raise TypeError("this exception stays where it is")


def fail_unpicklably():
    raise Unpicklable(object())


def a_lambda():
    return lambda: None


class Poison:
    def __reduce__(self):
        return int, ("not a number",)


def poison():
    return Poison()


def leave(code):
    sys.exit(code)


def leave_at_once():
    os._exit(0)


def die(number):
    os.kill(os.getpid(), number)


def with_grandchild(path):
    """Start a process that outlives us, tell its number, and wait."""
    child = subprocess.Popen(["sleep", "1000"])
    Path(path).write_text(f"{child.pid}\n")
    signal.pause()


def leave_grandchild(path):
    """Start a process that outlives us, tell its number, and return."""
    child = subprocess.Popen(["sleep", "1000"])
    child.returncode = 0  # so that nothing warns of it
    Path(path).write_text(f"{child.pid}\n")


def heed_nothing(path):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(path).write_text("ready\n")
    while True:
        signal.pause()


def rest(path):
    Path(path).write_text("ready\n")
    signal.pause()


def agent(folder):
    """Start two workers with a grandchild each, tell all numbers, and wait. Run as a program of its own."""
    from weft.distributed.elastic.multiprocessing import start_processes

    paths = [Path(folder) / name for name in ("a", "b")]
    context = start_processes("w", with_grandchild, {n: (str(p),) for n, p in enumerate(paths)}, {0: {}, 1: {}})
    shell = start_processes("s", "sleep", {0: ("1000",)}, {0: {}})
    pids = [*context.pids().values(), *shell.pids().values(), *map(line_of, paths)]
    print(*pids, flush=True)
    if sys.argv[3:] != ["leave"]:
        context.wait()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:3])
