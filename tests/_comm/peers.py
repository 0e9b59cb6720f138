"""Ranks for tests: threads of this process, or processes that run one case of `cases.py` each."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Thread

from tests.forked import started
from tests.waiting import until
from weft._comm.deadline import Deadline
from weft._comm.groups.collectives import Collectives
from weft._comm.groups.memory_group import connect
from weft._comm.groups.messages import Messages
from weft._comm.shared_memory.memory import PrivateMemory, SharedMemory


class Folder:
    """A store of files: just enough for ranks to find each other."""

    def __init__(self, path):
        self.path = Path(path)

    def set(self, key, value):
        new = self.path / f"{key}.new"
        new.write_bytes(value)
        new.rename(self.path / key)

    def get(self, key):
        return until((self.path / key).exists, f"no {key}") and (self.path / key).read_bytes()


class Rank:
    """One rank: its collectives, messages, and a deadline long enough for a busy machine."""

    def __init__(self, kind, store, rank, size, **options):
        self.rank, self.size = rank, size
        self.group = connect(kind, store, rank, size, Deadline(60), **options)
        self.collectives = Collectives(self.group)
        self.messages = Messages(self.group)
        self.deadline = Deadline(60)

    def close(self):
        self.messages.close()
        self.collectives.close()


def run_threads(size, case, path, kind=PrivateMemory, **options):
    """What `case(rank)` returns or raises, by rank."""
    store, found, done = Folder(path), [None] * size, Barrier(size)

    def body(rank):
        here = Rank(kind, store, rank, size, **options)
        try:
            found[rank] = case(here)
        except Exception as error:
            found[rank] = error
        finally:
            done.wait(60)  # nobody leaves while others still look
            here.close()

    threads = [Thread(target=body, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def results(found):
    """What was returned, where nobody raised."""
    for item in found:
        if isinstance(item, BaseException):
            raise item
    return found


@contextmanager
def processes(size, case, path, *words):
    """Running processes, rank by rank; none is left."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    commands = [
        [sys.executable, "-m", "tests._comm.cases", case, str(path), str(rank), str(size), *words]
        for rank in range(size)
    ]
    running = [started(command, text=True, **pipes) for command in commands]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stdin.close()


def told(process):
    """All that a process printed until it ended."""
    return process.communicate(timeout=60)[0]


def ready(path, size):
    """Wait until all ranks of the case `endless` are at it."""
    until(lambda: all((Path(path) / f"ready{rank}").exists() for rank in range(size)), "the ranks are not ready")


def main(cases):
    """The program of one process: `cases.py CASE PATH RANK SIZE WORDS…`."""
    name, path, rank, size, *words = sys.argv[1:]
    here = Rank(SharedMemory, Folder(path), int(rank), int(size))
    cases[name](here, *words)
