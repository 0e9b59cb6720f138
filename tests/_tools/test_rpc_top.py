"""The table of a running job's workers."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager, suppress

import pytest

from tests._tools import watched
from tests.distributed.processes import ended, start
from tests.distributed.rpc import job
from tests.distributed.rpc.test_tls import certified
from tests.waiting import is_stopped, until
from weft._comm.stores.file_store import FileStore
from weft._comm.stores.tcp_store import TCPStore
from weft._tools.rpc_top import top as _top
from weft.distributed import rpc
from weft.distributed.elastic.rendezvous.utils import free_port
from weft.distributed.rpc._listener import ConnectOptions

HEAD = [
    "worker",
    "number",
    "state",
    "host",
    "process",
    "calls/s",
    "running",
    "waiting",
    "in/s",
    "out/s",
    "rrefs",
    "threads",
    "connections",
]


@contextmanager
def running(size, address):
    """A job at work, whose processes the block may end."""
    module = "tests._tools.watched"
    workers = [start([sys.executable, "-m", module, str(rank), str(size), address]) for rank in range(size)]
    try:
        assert workers[0].stdout.readline() == f"{watched.READY}\n", workers[0].stderr.read()
        yield workers
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def end(workers):
    """Exit code, output and errors of the workers when worker 0 has been told to go on."""
    workers[0].stdin.write("\n")
    workers[0].stdin.flush()
    return ended(workers)


@pytest.fixture(scope="module")
def at_work(tmp_path_factory):
    """Address and processes of a job, which ends well although it was looked on."""
    address = f"file://{tmp_path_factory.mktemp('job')}/store"
    with running(2, address) as workers:
        yield address, workers
        for code, output, errors in end(workers):
            assert (code, output.splitlines()[-1:]) == (0, [job.PASSED]), errors


@pytest.mark.slow
def test_a_table(at_work, capsys):
    address, workers = at_work
    _top.main(["--once", "--interval", "0.2", address])
    head, *rows = [re.split("  +", line) for line in capsys.readouterr().out.splitlines()]
    assert head == HEAD
    for rank, row in enumerate(rows):
        assert row[:5] == [f"w{rank}", str(rank), "ok", socket.gethostname(), str(workers[rank].pid)]
    zero, one = (dict(zip(HEAD, row, strict=True)) for row in rows)
    assert int(one["calls/s"]) > 0
    assert {one["in/s"].split()[1], zero["out/s"].split()[1]} <= {"KB", "MB"}
    assert one["running"] in "12"
    assert one["rrefs"] == "2"
    assert zero["waiting"] in "12"
    assert (zero["calls/s"], zero["running"], zero["rrefs"]) == ("0", "0", "0")  # what is asked here is not counted
    assert {zero["connections"], one["connections"]} <= {"1", "2"}  # nor is who asks


@pytest.mark.slow
def test_a_stopped_worker_is_silent(at_work):
    address, workers = at_work
    with closing(_top.JobProbe(address, ConnectOptions())) as seen:
        seen.update()
        probe = next(probe for worker, probe in seen.probes.items() if worker.name == "w1")
        assert (probe.state, probe.now.process) == ("ok", workers[1].pid)
        os.kill(workers[1].pid, signal.SIGSTOP)
        until(lambda: is_stopped(workers[1].pid), "w1 does not stop")
        probe.update({}, 0.1)
        assert probe.state == "silent"
        os.kill(workers[1].pid, signal.SIGCONT)
        probe.update({}, 60)
        assert probe.state == "ok"


@pytest.mark.soak
def test_a_terminal_shows_who_goes(tmp_path):
    """The job ends as ever, and the table with it."""
    address = f"tcp://127.0.0.1:{free_port()}"
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "weft", "rpc", "top", "--interval", "0.05", address]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200", "LINES": "50"}
    with running(3, address) as workers, open(ours, "rb", buffering=0) as screen:
        top = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, env=environment)
        os.close(theirs)
        wait_for(screen, b"w2")
        workers[2].kill()
        wait_for(screen, b"gone")
        for code, output, errors in end(workers[:2]):
            assert code == 0, errors
            assert output.splitlines()[-2:] == [
                "shutdown: worker w2 ended without completing shutdown(); the others are done",
                job.PASSED,
            ]
        with suppress(OSError):  # which tells the end of a terminal
            while screen.read(1 << 16):
                pass
        assert (top.communicate()[1], top.returncode) == (b"", 0)


def wait_for(screen, text):
    seen = b""
    while text not in seen:
        assert select.select([screen], [], [], 60)[0], f"{text} is not shown, but {seen}"
        seen += screen.read(1 << 16)


def test_certificates(tmp_path, capsys):
    """Of a worker that takes TLS alone."""
    files = certified(tmp_path / "tls")
    address = f"file://{tmp_path}/store"
    options = rpc.TensorPipeRpcBackendOptions(init_method=address, _transports=["tcp"], certificates=files)
    rpc.init_rpc("alone", rank=0, world_size=1, rpc_backend_options=options)
    try:
        _top.main(["--once", "--interval", "0.01", "--certificates", *files, address])
        assert re.split("  +", capsys.readouterr().out.splitlines()[1])[:3] == ["alone", "0", "ok"]
        _top.main(["--once", "--interval", "0.01", address])
        _, row, note = capsys.readouterr().out.splitlines()
        assert re.split("  +", row)[:3] == ["alone", "0", "unreachable"]
        assert note.startswith("alone cannot be reached: it has TLS certificates and this worker has none;")
    finally:
        rpc.shutdown()


# --- errors ---


def told(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        _top.main(["--once", "--interval", "0.01", *arguments])
    return stop.value.code, capsys.readouterr().err


def test_an_address_that_is_none(capsys, monkeypatch):
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for url in ("tcp://localhost", "tcp://localhost:x", "localhost:2", "file://"):
        assert told(capsys, url) == (
            1,
            f"weft rpc top: error: {url!r} is no address of a store; give tcp://HOST:PORT, file:///PATH or env://\n",
        )
    assert told(capsys, "env://") == (
        1,
        "weft rpc top: error: env://: MASTER_ADDR and MASTER_PORT are not both set; give tcp://HOST:PORT instead\n",
    )


def test_a_store_that_is_not_there(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(_top, "_PATIENCE", 0.2)
    path = tmp_path / "store"
    text = f"weft rpc top: error: there is no store in {str(path)!r}; has the job started, and has it not ended?\n"
    assert told(capsys, f"file://{path}") == (1, text)
    path.touch()
    assert told(capsys, f"file://{path}") == (1, text)
    assert path.read_bytes() == b""
    port = free_port()
    code, text = told(capsys, f"tcp://127.0.0.1:{port}")
    assert code == 1
    assert text.startswith("weft rpc top: error: The client socket has timed out after 200ms while trying to connect")


def test_a_job_without_workers(capsys, tmp_path):
    path = tmp_path / "store"
    store = FileStore(str(path), 1)
    assert told(capsys, f"file://{path}") == (
        1,
        f"weft rpc top: error: no workers have joined the job at file://{path}; does it call init_rpc with this "
        "address?\n",
    )
    store.close()


@pytest.mark.slow
def test_another_key(at_work, capsys, monkeypatch):
    address, _ = at_work
    store = TCPStore("127.0.0.1", 0, is_master=True)
    monkeypatch.setenv("WEFT_JOB_KEY", "the key of another job")
    code, text = told(capsys, f"tcp://127.0.0.1:{store.port}")
    assert code == 1
    assert text.startswith(f"weft rpc top: error: the store at 127.0.0.1:{store.port} refuses this process: ")
    assert "has another job key" in text
    code, text = told(capsys, address)
    assert code == 1
    assert "was not written with this job's key; give all processes of a job the same WEFT_JOB_KEY" in text
    store.close()


@pytest.mark.parametrize("given", ["0", "-1", "nan", "x"])
def test_an_interval_that_is_none(given, capsys):
    code, text = told(capsys, "--interval", given, "env://")
    assert code == 2
    assert text.endswith(f"error: argument --interval: must be from 0.01 to 3600 seconds, got {given!r}\n")
