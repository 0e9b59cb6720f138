"""Ranks that are killed while they save, at every file operation: `killing.py FOLDER EVERY`.

This process has the modules, but has never computed; ranks are forked from it. Before each file operation in the
checkpoint's folder one rank is killed, in one save after another, at every EVERY-th of them. Whatever the moment, the
folder must hold the earlier checkpoint or the new one, and the other rank must not wait. It prints what it has seen.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import traceback
from datetime import timedelta
from itertools import count
from pathlib import Path

import weft as torch
import weft.distributed as dist
import weft.distributed.checkpoint as dcp
from weft.distributed.device_mesh import init_device_mesh
from weft.distributed.tensor import Shard, distribute_tensor
from weft.errors import DistBackendError

EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.scandir", "os.listdir")
PART = re.compile(r"\.(__.*\.distcp|\.metadata)\.[0-9a-f]{8}\.part")
SECONDS = 60
jobs = count()


class Trap:
    """Counts the file operations in a folder, and kills the process before the one with a number."""

    def __init__(self, folder, deadly):
        self.folder, self.deadly, self.events = str(folder), deadly, []
        sys.addaudithook(self)

    def __call__(self, event, arguments):
        # Files are made under other names first, relative to the open folder.
        if event in EVENTS and (str(arguments[0]).startswith(self.folder) or PART.fullmatch(str(arguments[0]))):
            if len(self.events) == self.deadly:
                os.kill(os.getpid(), signal.SIGKILL)
            self.events.append(event)


def state_of(value, mesh):
    """What is saved: a distributed tensor of uneven parts, one that every rank has, and an object."""
    x = torch.arange(5.0) + value
    return {
        "x": distribute_tensor(x, mesh, [Shard(0)]) if mesh else x,
        "y": torch.full((3,), float(value)),
        "value": value,
    }


def save(rank, size, folder, value, job, background):
    """Save on one rank; returns whether the others have failed."""
    dist.init_process_group("shm", f"file://{job}", timedelta(seconds=SECONDS), size, rank)
    state = state_of(value, init_device_mesh("cpu", (size,)))
    try:
        if background:
            dcp.async_save(state, checkpoint_id=folder).result(SECONDS)
        else:
            dcp.save(state, checkpoint_id=folder)
    except DistBackendError:
        return True
    dist.destroy_process_group()
    return False


def loaded(rank, size, folder, job):
    """The value that a checkpoint was saved with, and that all of it has."""
    mesh = None
    if size > 1:
        dist.init_process_group("shm", f"file://{job}", timedelta(seconds=SECONDS), size, rank)
        mesh = init_device_mesh("cpu", (size,))
    state = state_of(-1, mesh)
    dcp.load(state, checkpoint_id=folder)
    x = state["x"].full_tensor() if mesh else state["x"]
    assert (x - torch.arange(5.0)).tolist() == [state["value"]] * 5
    assert state["y"].tolist() == [state["value"]] * 3
    if mesh:
        dist.destroy_process_group()
    return state["value"]


class Rank:
    """A forked process that runs `function(rank, size, …)`; its result comes through a pipe."""

    def __init__(self, function, *arguments, trap=None):
        self._output, inner = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._output)
            try:
                watching = Trap(*trap) if trap else None
                result = function(*arguments)
                os.write(inner, json.dumps([result, watching.events if watching else []]).encode())
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        os.close(inner)

    def end(self):
        """Its exit code, negative for a signal, and its result."""
        with open(self._output, "rb") as output:
            text = output.read()
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status), json.loads(text) if text else None


def together(function, size, folder, *arguments, victim=None, deadly=None):
    """How the ranks of one job end."""
    job = folder.parent / f"job {next(jobs)}"
    traps = {victim: (folder, deadly)} if victim is not None else {}
    ranks = [
        Rank(function, rank, size, folder, *arguments[:1], job, *arguments[1:], trap=traps.get(rank))
        for rank in range(size)
    ]
    return [rank.end() for rank in ranks]


def value_in(folder, size):
    """What is in the checkpoint, as ranks of a job of this size see it."""
    ends = together(loaded, size, folder)
    assert all(code == 0 for code, _ in ends), ends
    values = {result[0] for _, result in ends}
    assert len(values) == 1, values
    return values.pop()


def main():
    folder, every = Path(sys.argv[1]) / "checkpoint", int(sys.argv[2])
    kept, killed = 0, {}
    ends = together(save, 2, folder, kept, False)
    assert [code for code, _ in ends] == [0, 0], ends
    for victim in (0, 1):
        background = victim == 0
        for deadly in count(victim, every):
            ends = together(save, 2, folder, kept + 1, background, victim=victim, deadly=deadly)
            value = value_in(folder, 1 + deadly % 3)
            assert value in (kept, kept + 1), (value, kept)
            if ends[victim][0] == 0:
                assert value == kept + 1
                kept = value
                break
            assert ends[victim][0] == -signal.SIGKILL
            assert ends[1 - victim][0] == 0, ends
            assert ends[1 - victim][1][0] or value == kept + 1, "the other rank takes an incomplete save for complete"
            killed.setdefault(victim, []).append(value - kept)
            kept = value
    ends = together(save, 3, folder, kept + 1, False)
    assert [code for code, _ in ends] == [0, 0, 0], ends
    names = sorted(name.rpartition("_")[0] or name for name in os.listdir(folder))
    sys.stdout.write(json.dumps({"killed": killed, "names": names, "value": value_in(folder, 2) - kept}))


if __name__ == "__main__":
    main()
