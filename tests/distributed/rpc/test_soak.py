"""Four workers under load for a long time, one of which is killed, or leaves, and joins again all the while."""

from __future__ import annotations

import json
import os
import sys
import time
from statistics import median

import pytest

from tests.distributed.processes import ended, start
from weft.distributed.elastic.rendezvous.utils import free_port

SECONDS = float(os.environ.get("WEFT_SOAK_SECONDS", "600"))
EVERY = 20.0  # seconds between two ends of the worker that is restarted
NAMES = ("w0", "w1", "w2", "w3")
FLAT = 1.1  # by how much the memory of the last third may exceed that of the second


class Worker:
    def __init__(self, name, rank, address):
        self.process = start(
            [sys.executable, "-m", "tests.distributed.rpc.soaked", name, str(rank), address, ",".join(NAMES)]
        )
        assert self.hear()["joined"] == name

    def hear(self):
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        return json.loads(line)

    def tell(self, *words):
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()

    def ask(self, *words):
        self.tell(*words)
        return self.hear()


def come_and_go(workers, address, seen):
    """Restart the last worker until the time is over; it is killed, and leaves, by turns."""
    end, restarts = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        workers[3] = Worker("w3", -1, address)
        for one in workers[:3]:
            one.tell("forgive", "w3")
        time.sleep(min(EVERY, max(0.0, end - time.monotonic())))  # under load
        for one, looks in zip(workers[:3], seen, strict=True):
            looks.append(one.ask("look"))
            assert not looks[-1]["wrongs"], looks[-1]["wrongs"][:3]
            assert looks[-1]["errors"].keys() <= {"w3"}, looks[-1]["errors"]
        last = workers[3].ask("look")
        assert not last["wrongs"], last["wrongs"][:3]
        restarts += 1
        if restarts % 2:
            workers[3].process.kill()
        else:
            workers[3].tell("leave")
        workers[3].process.communicate()
    return restarts


@pytest.mark.soak
def test_memory_is_flat_and_no_reply_is_wrong(tmp_path):
    address = f"tcp://127.0.0.1:{free_port()}"
    workers, seen = [], [[], [], []]
    try:
        for name in NAMES[:3]:
            workers.append(Worker(name, 0 if name == "w0" else -1, address))
        for one in workers:
            for name in NAMES[:3]:
                one.tell("forgive", name)
        workers.append(None)
        restarts = come_and_go(workers, address, seen)
        del workers[3]
        for command, expected in (("stop", {"stopped": True}), ("left", {"left": {}})):
            for one in workers:
                one.tell(command)
            assert [one.hear() for one in workers] == [expected] * 3
        for one in reversed(workers):  # the first keeps the store
            one.tell("leave")
            assert ended([one.process]) == [(0, "", "")]
    finally:
        for one in workers:
            if one is not None:
                one.process.kill()
    print(f"{restarts} restarts, rounds {[looks[-1]['rounds'] for looks in seen]}")
    print(f"megabytes {[[round(look['megabytes']) for look in looks] for looks in seen]}")
    for looks in seen:
        sizes = [look["megabytes"] for look in looks]
        third = len(sizes) // 3
        assert median(sizes[-third:]) <= FLAT * median(sizes[third : 2 * third]), sizes
