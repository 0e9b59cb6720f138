"""Workers that are forked from a process which has imported before are like freshly started ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed.elastic.multiprocessing.programs import DEADLINE, await_end, line_of
from tests.distributed.elastic.nodes import Node
from tests.waiting import is_gone
from weft.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std, SubprocessContext, _forked
from weft.distributed.elastic.multiprocessing._entry import RUNNER
from weft.distributed.elastic.multiprocessing._forked import ForkedContext, ForkServer, preloaded_for

TELL = """
import json, os, sys
json.dump({
    "argv": sys.argv, "path": sys.path[0], "file": __file__, "name": __name__, "main": sys.modules["__main__"].__file__,
    "original": sys.orig_argv, "env": dict(os.environ), "cwd": os.getcwd(), "leads": os.getpid() == os.getsid(0),
    "open": len(os.listdir("/proc/self/fd")), "parent": os.getppid(), "loaded": sorted(sys.modules),
    "signals": [
        line for line in open("/proc/self/status")
        if line.startswith(("SigB", "SigI", "SigC", "SigP", "Shd", "Threads", "Umask"))
    ],
    "flags": str(sys.flags), "stdout": str(sys.stdout), "stdin": os.readlink("/proc/self/fd/0"),
}, sys.stdout)
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def make(text, name="prog.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return str(path)

    return make


def start(starter, *program, count=1, folder=None, **env):
    return starter(
        name="t",
        entrypoint=sys.executable,
        args=dict.fromkeys(range(count), (*RUNNER, *program)),
        envs={rank: {"LOCAL_RANK": str(rank), **env} for rank in range(count)},
        start_method="spawn",
        logs_specs=DefaultLogsSpecs(str(folder), Std.ALL) if folder else DefaultLogsSpecs(os.devnull),
    )


def outputs(context):
    result = context.wait(DEADLINE)
    assert result is not None
    assert not result.failures, [Path(path).read_text() for path in result.stderrs.values()]
    return [Path(path).read_text() for path in result.stdouts.values()]


def test_a_worker_sees_what_a_started_one_sees(script, tmp_path):
    path = script(TELL, "sub/prog.py")
    with ForkServer("tomllib", [path, "a"]) as server:
        context = start(server.start, path, "a", folder=tmp_path, OWN="x")
        assert isinstance(context, ForkedContext)
        [forked] = map(json.loads, outputs(context))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(server, "_gone", True)
            context = start(server.start, path, "a", folder=tmp_path, OWN="x")
            assert isinstance(context, SubprocessContext)
            [plain] = map(json.loads, outputs(context))
    assert plain["parent"] == os.getpid() != forked["parent"]
    assert "tomllib" in forked["loaded"]
    assert "tomllib" not in plain["loaded"]
    for told in (forked, plain):
        assert told["env"].pop("TORCHELASTIC_ERROR_FILE")
        told.pop("parent"), told.pop("loaded")
    assert forked == plain


def test_workers_draw_other_random_numbers(script, tmp_path):
    path = script("import numpy, random; print(numpy.random.rand(), random.random())")
    with ForkServer("numpy,random", [path]) as server:
        first, second = outputs(start(server.start, path, count=2, folder=tmp_path))
    assert not set(first.split()) & set(second.split())


def test_ends_and_errors_are_told(script, tmp_path):
    text = (
        "import os, signal, time\nrank = os.environ['LOCAL_RANK']\n"
        "if rank == '1':\n    raise ValueError('boom')\n"
        "time.sleep(60)\n"
    )
    path = script(text)
    with ForkServer("json", [path]) as server:
        context = start(server.start, path, count=2, folder=tmp_path)
        pids = context.pids()
        failures = context.wait(DEADLINE).failures
        assert list(failures) == [1]
        assert failures[1].exitcode == 1
        assert failures[1].headline() == f"ValueError: boom ({path}:4)"
        assert "_fork_server" not in failures[1].traceback()
        assert is_gone(pids[0])
        context = start(server.start, script("import os; os.kill(os.getpid(), 11)"))
        assert context.wait(DEADLINE).failures[0].message.startswith("Signal 11 (SIGSEGV) received by PID")
        context = start(server.start, script("raise SystemExit(7)"))
        assert context.wait(DEADLINE).failures[0].exitcode == 7
    assert is_gone(server._process.pid)


def test_workers_of_a_killed_server_are_ended_and_the_next_ones_do_without(script, tmp_path):
    path = script("import sys, signal, pathlib\npathlib.Path(sys.argv[1]).write_text('ready\\n')\nsignal.pause()\n")
    with ForkServer("json", [path]) as server:
        context = start(server.start, path, tmp_path / "ready")
        line_of(tmp_path / "ready")
        server._process.kill()
        assert context.wait(DEADLINE).failures[0].exitcode == -signal.SIGKILL
        await_end(context.pids()[0])
        context = start(server.start, script("pass"))
        assert isinstance(context, SubprocessContext)
        assert context.wait(DEADLINE).return_values == {0: None}


def test_a_server_that_dies_between_starts_is_done_without(script):
    path = script("pass")
    with ForkServer("json", [path]) as server:
        assert start(server.start, path).wait(DEADLINE).return_values == {0: None}
        server._process.kill()
        server._process.wait()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(server, "_look", lambda: None)  # it dies only after it was looked at
            context = start(server.start, path)
        assert isinstance(context, SubprocessContext)
        assert context.wait(DEADLINE).return_values == {0: None}


def test_nothing_outlives_a_killed_agent(script, tmp_path):
    path = script(
        "import os, sys, signal, pathlib\n"
        "pathlib.Path(sys.argv[1], os.environ['RANK']).write_text(f'{os.getpid()} {os.getppid()}\\n')\nsignal.pause()\n"
    )
    command = [sys.executable, "-m", "weft.distributed.run", "--nproc-per-node", "2", path, str(tmp_path)]
    agent = subprocess.Popen(command, env=os.environ | {"WEFT_PRELOAD": "json"})
    found = [line_of(tmp_path / rank).split() for rank in "01"]
    assert len({server for _, server in found} - {str(agent.pid)}) == 1
    agent.kill()
    agent.wait()
    for pid in {pid for pids in found for pid in pids}:
        await_end(int(pid))


def test_signals_reach_forked_workers(script):
    text = (
        "import signal, sys, os\nsignal.signal(signal.SIGTERM, lambda *_: print('told', flush=True) or sys.exit(0))\n"
        "print(os.getppid(), flush=True)\nwhile True: signal.pause()\n"
    )
    node = Node("--max-restarts", 1, script(text), env={"WEFT_PRELOAD": "json"})
    server = int(node.line())
    assert server != node.process.pid
    assert node.kill(signal.SIGTERM) == 128 + signal.SIGTERM
    assert node.line() == "told"
    assert is_gone(server)


def test_a_single_worker_that_is_started_once_needs_no_server(script):
    node = Node(script("import os; print(os.getppid())"), env={"WEFT_PRELOAD": "json"})
    assert int(node.line()) == node.process.pid
    assert node.end() == 0


@pytest.mark.parametrize(
    ("modules", "why"),
    [
        ("no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("threaded", "PreconditionError: importing threaded has started threads, which forks do not have"),
    ],
)
def test_where_forking_is_not_possible_workers_are_started(modules, why, script, caplog):
    script("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()", "threaded.py")
    path = script("pass")
    with ForkServer(modules, [path]) as server:
        context = start(server.start, path)
        assert isinstance(context, SubprocessContext)
        assert context.wait(DEADLINE).return_values == {0: None}
    assert f"workers are started without sharing imports: {why}" in caplog.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import weft, os\nos.environ['WEFT_RENDEZVOUS_ROUND']", True),
        ("import weft as torch", True),
        ("def f():\n    from weft.nn import Linear", True),
        ("from weft.distributed import elastic", True),
        (
            "from weft.distributed.elastic.multiprocessing.errors import record\nfrom weft.errors import DistError",
            False,
        ),
        ("import wefter", False),
        ("x = 'import weft'", False),
        ("import os\nos.environ['JAX_PLATFORMS'] = 'cpu'\nimport weft", False),
    ],
)
def test_what_is_imported_before_is_read_off_the_program(text, expected, script, tmp_path, monkeypatch):
    wanted = _forked._PRELOADED if expected else ""
    path = script(text, "package/__main__.py")
    script(text, "package/part.py")
    monkeypatch.syspath_prepend(tmp_path)
    for program in ([path], [str(Path(path).parent)], ["-m", "package"], ["-m", "package.part"]):
        assert preloaded_for([*program, "--lr", "1"]) == wanted
    assert preloaded_for(["-m", "package.none"]) == preloaded_for([]) == ""
    monkeypatch.setenv("WEFT_PRELOAD", "one,two")
    assert preloaded_for([path]) == "one,two"


JOB = """
import os, sys, weft, weft.distributed as dist
assert sys.argv[1:] == ["a"]
dist.init_process_group()
x = weft.ones(2)
dist.all_reduce(x)
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
sys.stdout.write(f"{attempt} {os.getppid()} {x.tolist()}\\n")
sys.stdout.flush()
if attempt == "0":
    dist.barrier()
    if dist.get_rank():
        os.kill(os.getpid(), 9)
    dist.barrier()
"""


def test_a_job_shares_its_imports_from_start_to_restart(script):
    command = [sys.executable, "-m", "weft.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, "--max-restarts", "1", script(JOB), "a"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    lines = sorted(line.split(maxsplit=2) for line in done.stdout.splitlines())
    assert [(attempt, value) for attempt, _, value in lines] == [("0", "[2.0, 2.0]")] * 2 + [("1", "[2.0, 2.0]")] * 2
    assert len({parent for _, parent, _ in lines}) == 1
