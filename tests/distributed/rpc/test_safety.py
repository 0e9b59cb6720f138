"""What strangers and faulty peers can do to a worker: nothing but lose their own connection."""

from __future__ import annotations

import json
import socket
import sys
import time
from contextlib import suppress

import pytest

from tests.distributed.processes import ended, start
from tests.distributed.rpc import job
from tests.distributed.rpc.malformed import Frames, Greetings, connected, drained, frame, proved, service_of
from weft._comm.deadline import Deadline
from weft._comm.transport.authentication import PROOF_SECONDS, authenticate
from weft._comm.transport.key import job_key
from weft._comm.transport.pipe import MOST_BYTES
from weft.distributed import rpc
from weft.distributed.elastic.rendezvous.utils import free_port
from weft.distributed.rpc._listener import _warn_of_plain_text
from weft.distributed.rpc._protocol import Frame
from weft.distributed.rpc._state import current_agent
from weft.errors import JobKeyError

FAMILIES = [socket.AF_UNIX, socket.AF_INET]
MEGABYTE = 1 << 20
GREETINGS = 5  # wrong ones for each right one


class Attacked:
    """A worker to be attacked, and one that goes on calling it."""

    def __init__(self, folder):
        self.bomb = folder / "bomb"
        self.endpoint = {}
        self.processes = []

    def __enter__(self):
        address = f"tcp://127.0.0.1:{free_port()}"
        try:
            for rank in "01":
                self.processes.append(start([sys.executable, "-m", "tests.distributed.rpc.attacked", rank, address]))
                self.endpoint = self.endpoint or json.loads(self.processes[0].stdout.readline())
            self.calls()
        except ValueError:  # a worker has ended
            raise AssertionError(ended(self.processes)) from None
        return self

    def __exit__(self, *_):
        """Both workers leave, and nothing was amiss but strangers, of whom some are told."""
        for process in reversed(self.processes):
            ((code, output, errors),) = ended([process])
            assert (code, output) == (0, f"{job.PASSED}\n"), errors
            assert all(" was sent away: " in line for line in errors.splitlines())
        assert not self.bomb.exists()

    def _told(self, rank):
        process = self.processes[rank]
        process.stdin.write("tell\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    def calls(self):
        """How many calls the other worker has made, all of them well."""
        return self._told(1)

    def figures(self):
        return self._told(0)

    def settled(self, before):
        """The figures, as soon as there are no more connections, sockets and threads than before."""
        end = time.monotonic() + 60
        while True:
            found = self.figures()
            if all(found[name] <= before[name] for name in ("connections", "sockets", "threads")):
                return found
            assert time.monotonic() < end, (before, found)

    def fuzz(self, count, seed, most=60):
        """Send at least so many malformed frames; returns how many without a proof, and how many after one."""
        greetings = Greetings(self.endpoint, job_key(), str(self.bomb), seed)
        frames, before, after = Frames(str(self.bomb), seed), 0, 0
        try:
            while before + after < count:
                for family in FAMILIES:
                    for _ in range(GREETINGS):
                        sock = connected(self.endpoint, family)
                        greetings.say(sock)
                        drained(sock)
                    sock, outgoing = proved(self.endpoint, family, job_key())
                    sent, number = frames.some(most, outgoing)
                    with suppress(ConnectionError):  # the worker may have seen enough
                        sock.sendall(sent)
                    drained(sock)
                    before, after = before + GREETINGS, after + number
        finally:
            frames.close()
        return before, after


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    with Attacked(tmp_path_factory.mktemp("attacked")) as made:
        yield made


def withstand(attacked, count):
    quiet = attacked.figures()
    attacked.fuzz(300, seed=0)
    before, calls = attacked.settled(quiet), attacked.calls()
    sent = attacked.fuzz(count, seed=1)
    after = attacked.settled(before)
    assert attacked.calls() > calls + 10
    assert not attacked.bomb.exists()
    return sent, before, after


@pytest.mark.slow
def test_malformed_frames_harm_nobody(attacked):
    _, before, after = withstand(attacked, 4_000)
    assert after["memory"] < before["memory"] + 64 * MEGABYTE


@pytest.mark.soak
def test_a_million_malformed_frames_harm_nobody(tmp_path):
    begun = time.monotonic()
    with Attacked(tmp_path) as made:
        sent, before, after = withstand(made, 1_000_000)
        print(sent, before, after, f"{time.monotonic() - begun:.0f} s", made.calls())
    assert after["memory"] < before["memory"] + 128 * MEGABYTE  # memory that is lent, and used again


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_frame_takes_no_memory_before_it_is_there(attacked, family):
    before = attacked.figures()
    proofs = [proved(attacked.endpoint, family, job_key()) for _ in range(8)]
    for sock, outgoing in proofs:
        part = bytes(2 * MEGABYTE)  # more than a socket holds, so it is being read
        sock.sendall(frame(outgoing, Frame.CALL, part, size=MOST_BYTES))
    assert attacked.figures()["memory"] < before["memory"] + 128 * MEGABYTE
    for sock, _ in proofs:
        drained(sock)
    attacked.settled(before)


@pytest.mark.slow
def test_silent_callers_keep_nobody_out(attacked):
    before, silent = attacked.figures(), [connected(attacked.endpoint, FAMILIES[n % 2]) for n in range(300)]
    begun = time.monotonic()
    proved(attacked.endpoint, socket.AF_UNIX, job_key())[0].close()
    assert time.monotonic() < begun + PROOF_SECONDS  # those before it have not been waited for
    for sock in silent:
        drained(sock)
    attacked.settled(before)


@pytest.mark.slow
def test_another_key_is_told(attacked, monkeypatch):
    for family, who in ((socket.AF_UNIX, "a process of this host"), (socket.AF_INET, "127.0.0.1:")):
        with (
            connected(attacked.endpoint, family) as sock,
            pytest.raises(JobKeyError, match=f"^{who}.* has another job key"),
        ):
            authenticate(sock, b"another", service_of(attacked.endpoint), Deadline(60))


@pytest.mark.slow
@pytest.mark.parametrize(
    "program", ["other_keys", *(pytest.param(one, marks=pytest.mark.soak) for one in ("long_answer", "double"))]
)
def test_workers(program, tmp_path):
    job.run("tests.distributed.rpc.guarded", program, 2, tmp_path)


@pytest.fixture
def alone(tmp_path):
    """Options of a worker that is alone."""
    return rpc.TensorPipeRpcBackendOptions(init_method=f"file://{tmp_path}/store")


def test_a_key_that_cannot_be_read(alone, tmp_path, monkeypatch):
    monkeypatch.delenv("WEFT_JOB_KEY", raising=False)
    monkeypatch.setenv("WEFT_JOB_KEY_FILE", str(tmp_path / "none"))
    with pytest.raises(
        RuntimeError, match=r"^the job's key cannot be read: .*none'; set WEFT_JOB_KEY, or mend the file$"
    ):
        rpc.init_rpc("w0", rank=0, world_size=1, rpc_backend_options=alone)


@pytest.mark.parametrize(
    ("told", "bound"),
    [(None, "127.0.0.1"), ("", "127.0.0.1"), ("127.0.0.1", "127.0.0.1"), ("127.0.0.2", "127.0.0.2"), ("0.0.0.0", "::")],
)
def test_workers_listen_on_loopback_unless_told_otherwise(alone, told, bound, monkeypatch, caplog):
    _warn_of_plain_text.cache_clear()
    monkeypatch.delenv("WEFT_RPC_HOST", raising=False)
    if told is not None:
        monkeypatch.setenv("WEFT_RPC_HOST", told)
    rpc.init_rpc("w0", rank=0, world_size=1, rpc_backend_options=alone)
    try:
        listener = current_agent().peers.listener
        assert listener.endpoint["address"] == (told or "127.0.0.1")
        assert listener.sockets[0].getsockname()[0] == bound
        assert caplog.text.count("remote calls between hosts are not encrypted") == (told == "0.0.0.0")
    finally:
        rpc.shutdown()
