"""`weft top` on jobs that `weft run` has started, and what their launchers answer."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import uuid
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from urllib.request import urlopen

import pytest

from tests.distributed.elastic.nodes import Node
from tests.waiting import is_stopped, until
from weft._comm.stores.file_store import FileStore
from weft._comm.stores.tcp_store import TCPStore
from weft._tools.top import top
from weft._tools.top.client import EndWatch, ask, endpoints_of
from weft.distributed.elastic._http import MOST_CONNECTIONS
from weft.distributed.elastic.multiprocessing._forked import _PRELOADED
from weft.distributed.elastic.rendezvous.utils import free_port
from weft.errors import DistError

TRAINING = """
import sys
from pathlib import Path

import weft
import weft.distributed as dist
from weft import nn
from weft.monitor import report
from weft.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
optimizer = weft.optim.SGD(model.parameters(), lr=1e-3)
over = weft.zeros(1)
while not over.item():
    for x in DataLoader(weft.randn(8, 4), batch_size=4):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(tokens=40, loss=loss)
    over = weft.tensor([float(Path(sys.argv[1]).exists())])
    dist.all_reduce(over, op=dist.ReduceOp.MIN)
dist.destroy_process_group()
"""

REPORTING = """
import os, sys, time
from pathlib import Path
from weft.monitor import report

while not Path(sys.argv[1]).exists():
    report(samples=10, rank=os.environ["RANK"].isdigit())
    time.sleep(0.01)
sys.exit(int(sys.argv[2]))
"""  # which loads no arrays, and so is there at once


@contextmanager
def running(folder, program, *arguments, nproc=2, flags=(), **environment):
    """A job that ends well when its file is there, and the id of the job."""
    script, stop, job = folder / "train.py", folder / "stop", f"job-{uuid.uuid4().hex}"
    script.write_text(program)
    command = [*flags, "--nproc-per-node", nproc, "--rdzv-id", job, script, stop, *arguments]
    node = Node(*command, env={"WEFT_PRELOAD": ""} | environment)
    try:
        yield node, job
        stop.touch()
    finally:
        code = node.end() if stop.exists() else node.kill(signal.SIGTERM)
    assert code == int(arguments[0] if arguments else 0), node.stderr


def found(job):
    """The launcher of a job, once it is there."""

    def look():
        with suppress(DistError):
            return endpoints_of(job)

    return until(look, f"{job} does not appear")


def at_work(job, number="samples", more_than=0):
    """The launcher of a job, once all of its workers have counted so much."""
    endpoints = found(job)

    def counted():
        workers = [worker for node in ask(endpoints).nodes for worker in node.workers]
        return workers and all(worker.numbers.get(number, 0) > more_than for worker in workers)

    until(counted, f"{job} does not go on")
    return endpoints


def once(capsys, *arguments):
    """What `weft top --once` prints: its lines in cells."""
    top.main(["--once", "--interval", "0.3", *arguments])
    return [re.split("  +", line.strip()) for line in capsys.readouterr().out.splitlines()]


def as_json(capsys, *arguments):
    top.main(["--once", "--json", "--interval", "0.3", *arguments])
    (line,) = capsys.readouterr().out.splitlines()
    return json.loads(line)


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """A job of two ranks that train: its id, and the port of its health check."""
    port = free_port()
    environment = {"TORCHELASTIC_HEALTH_CHECK_PORT": str(port), "WEFT_TIER": "interpreted", "WEFT_PRELOAD": _PRELOADED}
    with running(tmp_path_factory.mktemp("job"), TRAINING, **environment) as (_, job):
        at_work(job, "steps", 4)
        yield job, port


@pytest.mark.slow
def test_steps_advance(training, capsys):
    job, _ = training
    first, second = as_json(capsys, job), as_json(capsys, job)
    assert (first["job"], first["program"].endswith("train.py"), first["state"]) == (job, True, "HEALTHY")
    assert [node["host"] for node in first["nodes"]] == [socket.gethostname()]
    for before, after in zip(first["ranks"], second["ranks"], strict=True):
        assert (before["rank"], before["pid"], before["node"]) == (after["rank"], after["pid"], 0)
        assert after["steps"] > before["steps"] > 4
        assert 0 < after["step_seconds"] < 10
        assert after["tokens_per_second"] > 0
        assert after["resident_bytes"] > 1 << 20
        assert after["samples_per_second"] is None
        assert 0 < after["shares"]["collectives"] <= 1
        assert 0 < after["shares"]["data"] < 1
        assert list(after["reported"]) == ["loss"]
    assert [rank["rank"] for rank in first["ranks"]] == [0, 1]


@pytest.mark.slow
def test_a_view_once(training, capsys):
    job, port = training
    for target in (job, f"127.0.0.1:{port}", f"http://localhost:{port}/"):
        head, columns, zero, one, together = once(capsys, target)
        assert head[0].startswith(f"{Path(head[0].partition(',')[0])}, job {job}: running for ")
        assert head[0].endswith(" 2 ranks on 1 node")
        names = ["rank", "process", "state", "step", "step time", "tokens/s", "compiled", "data", "collectives"]
        assert columns == [*names, "memory"]
        assert (zero[0], one[0], together[0]) == ("0", "1", "all")
        assert {zero[2], one[2]} <= {"ok", "slow"}
        assert zero[-1].startswith("loss ")


@pytest.mark.slow
def test_a_stopped_rank_is_marked(training, capsys):
    job, _ = training
    pid = as_json(capsys, job)["ranks"][1]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: is_stopped(pid), "rank 1 does not stop")
        endpoints = endpoints_of(job)
        until(lambda: ask(endpoints).nodes[0].workers[0].wait is not None, "rank 0 does not wait")
        zero, one = as_json(capsys, job)["ranks"]
        assert (one["state"], one["tokens_per_second"]) == ("stopped", None)
        assert zero["state"] == "ok"  # for the first ten seconds
        assert once(capsys, job)[3][-1].startswith("no step for ")
    finally:
        os.kill(pid, signal.SIGCONT)
    steps = as_json(capsys, job)["ranks"][1]["steps"]
    until(lambda: as_json(capsys, job)["ranks"][1]["steps"] > steps, "rank 1 does not go on")


@pytest.mark.slow
def test_metrics_for_prometheus(training, capsys):
    parser = pytest.importorskip("prometheus_client.parser")
    job, port = training
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
        assert page.headers["Content-Type"].startswith("text/plain; version=")
        families = {family.name: family for family in parser.text_string_to_metric_families(page.read().decode())}
    steps = {sample.labels["rank"]: sample for sample in families["weft_steps"].samples}
    assert steps.keys() == {"0", "1"}
    assert {sample.labels["job"] for sample in steps.values()} == {job}
    now = as_json(capsys, job)["ranks"]
    for rank in (0, 1):
        assert 4 < steps[str(rank)].value <= now[rank]["steps"]
    assert families["weft_steps"].type == "counter"
    waits = {(sample.labels["rank"], sample.labels["for"]) for sample in families["weft_wait_seconds"].samples}
    assert waits == {(rank, kind) for rank in "01" for kind in ("data", "collectives", "calls")}
    assert {sample.labels["name"] for sample in families["weft_reported"].samples} == {"loss"}
    assert {sample.value for sample in families["weft_running"].samples} == {1}
    assert all(sample.value > 1 << 20 for sample in families["weft_resident_bytes"].samples)


@pytest.mark.slow
def test_the_health_check_is_as_ever(training):
    _, port = training
    for path in ("", "/", "/healthz"):
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as page:
            assert page.read() == b"alive\n"
    with urlopen(f"http://127.0.0.1:{port}/node", timeout=20) as page:
        assert page.headers["Content-Type"] == "application/json"
        assert [worker["rank"] for worker in json.load(page)["nodes"][0]["workers"]] == [0, 1]


def watching(job, *flags, **options):
    command = [sys.executable, "-m", "weft", "top", "--interval", "0.1", *flags, job]
    return subprocess.Popen(command, stderr=subprocess.PIPE, **options)


def test_a_terminal_shows_the_end(tmp_path):
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200", "LINES": "50"}
    with open(ours, "rb", buffering=0) as screen:
        with running(tmp_path, REPORTING, "0") as (_, job):
            at_work(job)
            watcher = watching(job, stdout=theirs, env=environment)
            os.close(theirs)
            seen = b""
            while seen.count(b"samples/s") < 3:
                assert select.select([screen], [], [], 60)[0], seen
                seen += screen.read(1 << 16)
        with suppress(OSError):  # which tells the end of a terminal
            while screen.read(1 << 16):
                pass
        told = watcher.communicate(timeout=60)[1].decode()
    assert (told, watcher.returncode) == (f"weft top: {tmp_path}/train.py, job {job}, has succeeded\n", 0)


@pytest.mark.soak
def test_a_job_that_fails_while_it_is_watched(tmp_path):
    with running(tmp_path, REPORTING, "3") as (_, job):
        at_work(job)
        watcher = watching(job, "--json", stdout=subprocess.PIPE)
        assert [rank["state"] for rank in json.loads(watcher.stdout.readline())["ranks"]] == ["ok", "ok"]
    told = watcher.communicate(timeout=60)[1].decode()
    assert watcher.returncode == 1
    assert told.endswith(f"job {job}, has failed; the output of its launcher says why\n")


def test_a_job_whose_launcher_is_killed(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(REPORTING)
    job = uuid.uuid4().hex
    node = Node("--rdzv-id", job, script, tmp_path / "never", "0")
    try:
        watch = EndWatch(at_work(job)[0])
        watcher = watching(job, "--json", stdout=subprocess.PIPE)
        watcher.stdout.readline()
    finally:
        node.kill()
    assert watch.wait(60) == ""
    told = watcher.communicate(timeout=60)[1].decode()
    assert (watcher.returncode, told.endswith(f"job {job}, has lost its launcher\n")) == (1, True)


@pytest.mark.soak
def test_a_launcher_that_is_told_to_end(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(REPORTING)
    job = uuid.uuid4().hex
    node = Node("--rdzv-id", job, script, tmp_path / "never", "0")
    try:
        watch = EndWatch(at_work(job)[0])
    finally:
        code = node.kill(signal.SIGTERM)
    assert code == 128 + signal.SIGTERM
    assert watch.wait(60) == "HEALTHY"  # neither has it succeeded nor failed


@pytest.mark.soak  # how nodes exchange reports is tested in elastic/test_node_exchange.py
def test_two_nodes_are_seen_from_either(tmp_path, capsys):
    ports = free_port(), free_port()
    flags = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    script, stop, job = tmp_path / "train.py", tmp_path / "stop", uuid.uuid4().hex
    script.write_text(REPORTING)
    command = [*flags, "--nproc-per-node", 2, "--rdzv-id", job, script, stop, "0"]
    nodes = [Node(*command, env={"TORCHELASTIC_HEALTH_CHECK_PORT": str(port), "WEFT_PRELOAD": ""}) for port in ports]
    try:
        at_work(job)
        until(lambda: [probe(port) for port in ports] == [True, True], "no node answers")
        for target in (f"127.0.0.1:{ports[1]}", ",".join(f"127.0.0.1:{port}" for port in ports)):
            shown = as_json(capsys, target)
            assert [(rank["rank"], rank["node"]) for rank in shown["ranks"]] == [(0, 0), (1, 0), (2, 1), (3, 1)]
            assert all(rank["samples_per_second"] > 0 for rank in shown["ranks"])
            assert all(node["answers"] for node in shown["nodes"])
        agents = {node["agent"]: node["node"] for node in shown["nodes"]}
        os.kill(nodes[1].process.pid, signal.SIGSTOP)
        report = ask(endpoints_of(f"127.0.0.1:{ports[0]}"))
        silent = agents[nodes[1].process.pid]
        assert [(node.node, node.answers, len(node.workers)) for node in report.nodes] == [
            (node, node != silent, 2) for node in (0, 1)
        ]
        os.kill(nodes[1].process.pid, signal.SIGCONT)
        stop.touch()
        assert [node.end() for node in nodes] == [0, 0]
    finally:
        for node in nodes:
            if node.process.poll() is None:
                node.kill()


def probe(port):
    with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/node", timeout=20) as page:
        return len(json.load(page)["nodes"][0]["workers"]) == 2


def test_a_program_that_is_not_python(tmp_path, capsys):
    script = tmp_path / "wait.sh"
    script.write_text('#!/bin/sh\nuntil [ -e "$1" ]; do sleep 0.05; done\n')
    script.chmod(0o700)
    stop, job = tmp_path / "stop", uuid.uuid4().hex
    node = Node("--no-python", "--rdzv-id", job, script, stop)
    try:
        found(job)
        (rank,) = as_json(capsys, job)["ranks"]
        assert (rank["state"], rank["steps"], rank["doing"]) == ("ok", None, "tells nothing of what it does")
        assert rank["resident_bytes"] > 0
    finally:
        stop.touch()
        assert node.end() == 0


# --- errors ---


def told(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        top.main(["--once", "--interval", "0.01", *arguments])
    return stop.value.code, capsys.readouterr().err


def test_there_is_no_such_job(capsys):
    code, text = told(capsys, "no-such-job")
    assert code == 1
    assert text.startswith("weft top: error: no job ")
    code, text = told(capsys, f"127.0.0.1:{free_port()}")
    assert code == 1
    assert text.startswith("weft top: error: no launcher of a job answers at 127.0.0.1:")
    assert told(capsys, "127.0.0.1:99999") == (1, "weft top: error: there is no port 99999; ports are 1 to 65535\n")


@pytest.mark.parametrize(
    ("status", "answer", "text"),
    [(200, b"alive\n", "there is no launcher of a job: it answers 'alive\\n'"), (404, b"what?", "answers 404 ")],
)
def test_another_server_is_there(capsys, status, answer, text):
    class Other(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        thread = Thread(target=server.handle_request)
        thread.start()
        code, shown = told(capsys, f"127.0.0.1:{server.server_address[1]}")
        thread.join()
    assert code == 1
    assert text in shown


def test_a_store_is_there(capsys):
    """Whose port a launcher has, too."""
    store = TCPStore("127.0.0.1", 0, is_master=True)
    assert told(capsys, f"127.0.0.1:{store.port}") == (
        1,
        f"weft top: error: what answers at 127.0.0.1:{store.port} is no health check of a launcher, which has "
        "the port TORCHELASTIC_HEALTH_CHECK_PORT\n",
    )
    store.close()


@pytest.mark.soak
def test_several_jobs(tmp_path, capsys):
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    with (
        running(folders[0], REPORTING, "0", nproc=1) as (_, one),
        running(folders[1], REPORTING, "0", nproc=1) as (_, two),
    ):
        at_work(one), at_work(two)
        code, text = told(capsys, "train.py")
    assert code == 1
    assert text.startswith("weft top: error: there are several jobs, name one of them: ")
    assert f"{one} ({folders[0]}/train.py)" in text
    assert f"{two} ({folders[1]}/train.py)" in text


def test_the_store_of_remote_calls_goes_to_their_view(tmp_path, capsys):
    path = tmp_path / "store"
    store = FileStore(str(path), 1)
    code, text = told(capsys, f"file://{path}")
    assert code == 1
    assert text.startswith(f"weft rpc top: error: no workers have joined the job at file://{path};")
    store.close()


@pytest.mark.parametrize("wrong", ["0", "x"])
def test_an_interval_that_is_none(capsys, wrong):
    code, text = told(capsys, "--interval", wrong)
    assert code == 2
    assert text.endswith(f"error: argument --interval: must be from 0.01 to 3600 seconds, got {wrong!r}\n")


def test_those_who_wait_for_the_end_keep_nobody_else_from_asking(tmp_path):
    """A connection is kept for ten seconds, or until the job ends, and there are 32 of them."""
    with running(tmp_path, REPORTING, 0, nproc=1) as (_, job):
        (endpoint,) = at_work(job)
        waiting = [endpoint.connect() for _ in range(3 * MOST_CONNECTIONS)]
        for connection in waiting:
            connection.request("GET", "/end")
        surplus = [one for one in waiting if select.select([one.sock], [], [], 0.1)[0]]
        assert len(surplus) >= 2 * MOST_CONNECTIONS
        assert {one.sock.recv(1 << 10).partition(b"\r\n")[0] for one in surplus} == {
            b"HTTP/1.0 503 Service Unavailable"
        }
        assert endpoint.report(seconds=5).job == job
        for connection in waiting:
            connection.close()
