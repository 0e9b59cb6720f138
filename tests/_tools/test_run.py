"""`weft run` as users meet it: flags, programs, output, exit codes, and what it says about bad input."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed.elastic.nodes import SECONDS, WORKER, Node
from tests.forked import ran
from tests.waiting import nothing_left_in
from weft.distributed.elastic.rendezvous.utils import free_port
from weft.distributed.run import config_from_args, determine_local_world_size, parse_args, parse_min_max_nnodes

NO_STORE = "The connection to the C10d store has failed. See inner exception for details."
MULTIWORD = {
    "--nproc-per-node": "2",
    "--rdzv-backend": "c10d",
    "--rdzv-endpoint": "h:1",
    "--rdzv-id": "j",
    "--rdzv-conf": "a=1",
    "--max-restarts": "3",
    "--monitor-interval": "2.5",
    "--start-method": "fork",
    "--event-log-handler": "console",
    "--log-dir": "d",
    "--local-ranks-filter": "0",
    "--node-rank": "1",
    "--master-addr": "h",
    "--master-port": "7",
    "--local-addr": "l",
    "--logs-specs": "s",
    "--signals-to-handle": "SIGTERM",
    "--shutdown-timeout": "9",
    "--print-manifest": "slurm",
    "--container-image": "i",
    "--duplicate-stdout-filters": "a",
    "--duplicate-stderr-filters": "a",
}


@pytest.fixture(autouse=True)
def _outside_of_a_job(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("PET_", "TORCHELASTIC_")):
            monkeypatch.delenv(name)


def run(*args, code=0, cwd=None, module="weft.distributed.run", **env):
    """`weft run` to its end."""
    command = [sys.executable, "-m", module, *map(str, args)]
    done = ran(command, env=os.environ | env, cwd=cwd, timeout=SECONDS)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture
def script(tmp_path):
    def make(text, name="train.py"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return make


# --- flags ---


def test_flags_have_two_spellings():
    for dashed, value in MULTIWORD.items():
        dest = dashed.removeprefix("--").replace("-", "_")
        first, second = parse_args([dashed, value, "x.py"]), parse_args([f"--{dest}", value, "x.py"])
        assert getattr(first, dest) == getattr(second, dest) != getattr(parse_args(["x.py"]), dest)
    for switch in ("--no-python", "--run-path", "--no_python", "--run_path", "--virtual-local-rank", "-m", "--module"):
        assert sum(vars(parse_args([switch, "x.py"]))[name] for name in SWITCHES) == 1


SWITCHES = ("standalone", "module", "no_python", "run_path", "virtual_local_rank")


def test_defaults():
    args = vars(parse_args(["x.py", "--lr", "1"]))
    assert args == {
        "nnodes": "1:1",
        "nproc_per_node": "1",
        "rdzv_backend": "static",
        "rdzv_endpoint": "",
        "rdzv_id": "none",
        "rdzv_conf": "",
        "standalone": False,
        "max_restarts": 0,
        "monitor_interval": 0.1,
        "start_method": "spawn",
        "event_log_handler": "null",
        "role": "default",
        "module": False,
        "no_python": False,
        "run_path": False,
        "log_dir": None,
        "redirects": "0",
        "tee": "0",
        "local_ranks_filter": "",
        "duplicate_stdout_filters": [],
        "duplicate_stderr_filters": [],
        "node_rank": 0,
        "master_addr": "127.0.0.1",
        "master_port": None,
        "local_addr": None,
        "logs_specs": None,
        "signals_to_handle": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        "shutdown_timeout": None,
        "print_manifest": None,
        "container_image": None,
        "virtual_local_rank": False,
        "training_script": "x.py",
        "training_script_args": ["--lr", "1"],
    }


def test_the_environment_gives_defaults(monkeypatch):
    monkeypatch.setenv("PET_NPROC_PER_NODE", "3")
    monkeypatch.setenv("PET_MAX_RESTARTS", "4")
    monkeypatch.setenv("PET_STANDALONE", "1")
    monkeypatch.setenv("PET_DUPLICATE_STDOUT_FILTERS", "a,b,,c")
    args = parse_args(["x.py"])
    assert (args.nproc_per_node, args.max_restarts, args.standalone) == ("3", 4, True)
    assert args.duplicate_stdout_filters == ["a", "b,c"]
    assert parse_args(["--max-restarts", "5", "x.py"]).max_restarts == 5


def test_numbers_of_nodes_and_workers(monkeypatch):
    assert [parse_min_max_nnodes(text) for text in ("2", "1:4")] == [(2, 2), (1, 4)]
    with pytest.raises(RuntimeError, match=r'^nnodes=1:2:3 is not in "MIN:MAX" format$'):
        parse_min_max_nnodes("1:2:3")
    with pytest.raises(AssertionError, match=r"^--nnodes must be at least 1, and MIN at most MAX, got 3:2$"):
        parse_min_max_nnodes("3:2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,3")
    assert [determine_local_world_size(text) for text in ("4", "gpu", "auto")] == [4, 2, 2]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert determine_local_world_size("auto") == determine_local_world_size("cpu") == len(os.sched_getaffinity(0))
    with pytest.raises(ValueError, match=r"^Cuda is not available"):
        determine_local_world_size("gpu")
    with pytest.raises(ValueError, match=r"^Unsupported nproc_per_node value: many; it must be a positive number"):
        determine_local_world_size("many")


def test_the_static_rendezvous_takes_the_masters_address(script):
    args = parse_args(["--node-rank", "1", "--nnodes", "2", "--master-addr", "h", str(script(""))])
    config, _, _ = config_from_args(args)
    assert (config.rdzv_endpoint, config.rdzv_configs["rank"]) == ("h:29500", 1)


# --- programs ---

SAY = 'import os, sys; sys.stdout.write(" ".join([os.environ["RANK"], *sys.argv[1:]]) + "\\n")\n'


def test_a_script_gets_its_arguments_and_workers_their_ranks(script):
    done = run("--nproc-per-node", 2, script(SAY), "--lr", 1)
    assert sorted(done.stdout.splitlines()) == ["0 --lr 1", "1 --lr 1"]
    assert done.stderr == ""


def test_a_script_is_the_main_module(script):
    text = (
        "import json, sys, multiprocessing as mp, os, helper\n"
        "def child(queue): queue.put(__name__)\n"
        "if __name__ == '__main__':\n"
        "    queue = mp.get_context('spawn').Queue()\n"
        "    process = mp.get_context('spawn').Process(target=child, args=(queue,))\n"
        "    process.start()\n"
        "    print(json.dumps([sys.argv, __file__, sys.modules['__main__'].__file__, queue.get(), helper.HERE]))\n"
        "    process.join()\n"
    )
    script("HERE = True", "helper.py")
    path = str(script(text))
    assert json.loads(run(path, "a").stdout) == [[path, "a"], path, path, "__mp_main__", True]


def test_modules_commands_and_paths(script, tmp_path):
    script(SAY, "module.py")
    assert run("-m", "module", "a", cwd=tmp_path).stdout == "0 a\n"
    assert run("--no-python", "/bin/sh", "-c", 'echo "$RANK $0"', "b").stdout == "0 b\n"
    assert run("--run-path", script(SAY), "c").stdout == "0 c\n"


def test_standalone_ignores_what_is_given_and_makes_a_key(script):
    text = "import os; print(os.environ['MASTER_ADDR'], len(os.environ['WEFT_JOB_KEY']))"
    env = {"WEFT_JOB_KEY": "", "WEFT_JOB_KEY_FILE": ""}
    where = ("--rdzv-backend", "etcd", "--rdzv-endpoint", "nowhere:1", "--rdzv-id", "x")
    done = run("--standalone", *where, script(text), **env)
    assert done.stdout == "127.0.0.1 64\n"
    assert done.stderr == (
        "weft run: --standalone makes a rendezvous of its own and leaves unused: --rdzv-endpoint nowhere:1, "
        "--rdzv-id x, --rdzv-backend etcd\n"
    )
    assert run("--standalone", "--rdzv-backend", "c10d", script(text), **env).stderr == ""


def test_one_machine_needs_no_home(script):
    """Such as in a container whose file system cannot be written; several nodes need the key that is kept there."""
    nowhere = {"HOME": "/proc/none", "XDG_CACHE_HOME": "", "WEFT_JOB_KEY": "", "WEFT_JOB_KEY_FILE": ""}
    assert run("--standalone", script(SAY), "a", **nowhere).stdout == "0 a\n"
    assert run(script(SAY), "a", **nowhere).stdout == "0 a\n"
    told = run("--nnodes", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1", script(SAY), code=1, **nowhere)
    assert "the user's key cannot be written: " in told.stderr
    assert "set WEFT_JOB_KEY instead" in told.stderr


def test_the_launcher_loads_nothing_that_computes():
    loaded = "import sys, weft.distributed.run; print([name for name in ('jax', 'numpy') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True).stdout == "[]\n"


def test_the_command_has_subcommands():
    call = [sys.executable, "-m", "weft"]
    done = subprocess.run([*call, "run", "--no-python", "/bin/true"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run([*call, "walk"], capture_output=True, text=True)
    assert (done.returncode, done.stderr.endswith("/walk': no such file\n")) == (2, True)
    done = subprocess.run([*call, "rpc", "top", "--help"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.startswith("usage: weft rpc top [-h] [--once]")) == (0, True)


def test_masters_have_addresses_of_ipv6_and_free_ports(script):
    path = script("import os; print(os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']) > 0)")
    assert run("--master-addr", "::1", "--master-port", 0, path).stdout == "::1 True\n"


# --- the former name ---


def test_launch_tells_the_local_rank_by_a_flag(script):
    path = script("import os, sys; sys.stdout.write(' '.join([os.environ['LOCAL_RANK'], *sys.argv[1:]]) + '\\n')")
    done = run("--nproc-per-node", 2, path, "a", module="weft.distributed.launch")
    assert sorted(done.stdout.splitlines()) == ["0 --local-rank=0 a", "1 --local-rank=1 a"]
    assert "FutureWarning: weft.distributed.launch is deprecated, use `weft run`" in done.stderr
    assert run("--use_env", path, "a", module="weft.distributed.launch").stdout == "0 a\n"
    done = run("--no-python", "true", code=1, module="weft.distributed.launch")
    assert "When using the '--no-python' flag, you must also set the '--use-env' flag." in done.stderr


# --- output ---


def test_output_is_told_apart_and_kept(script, tmp_path):
    logs = tmp_path / "logs"
    done = run("--nproc-per-node", 2, "--tee", 1, "--log-dir", logs, script(SAY), "hello")
    assert sorted(done.stdout.splitlines()) == ["[default0]:0 hello", "[default1]:1 hello"]
    kept = sorted(logs.glob("*/attempt_0/*/stdout.log"))
    assert [path.read_text() for path in kept] == ["0 hello\n", "1 hello\n"]


def test_output_is_redirected_by_rank(script, tmp_path):
    done = run("--nproc-per-node", 2, "-r", "0:1", "--log-dir", tmp_path / "logs", script(SAY))
    assert done.stdout == "1\n"


def test_the_folder_of_logs_is_told_where_none_was_given(script, tmp_path):
    done = run("-r", 3, "--rdzv-id", "job7", script(SAY), TMPDIR=str(tmp_path))
    told = re.fullmatch(r"weft run: log directory set to: (.*)\n", done.stderr)[1]
    assert Path(told).name.startswith("job7_")
    assert Path(told, "attempt_0/0/stdout.log").read_text() == "0\n"


def test_a_filter_without_lines_to_pick_from_is_told(script):
    done = run("--duplicate-stdout-filters", "a", script(""))
    assert done.stderr == ("weft run: the filters pick lines of teed output, and there is none; pass --tee 3 as well\n")


# --- failures ---


def test_a_timer_that_expires_is_told(script):
    text = (
        "import os, signal\nfrom weft.distributed.elastic import timer\n"
        "timer.configure(timer.FileTimerClient(os.environ['TORCHELASTIC_TIMER_FILE']))\n"
        "with timer.expires(after=0.01, scope='step'): signal.pause()\n"
    )
    done = run(script(text), code=128 + signal.SIGKILL, TORCHELASTIC_ENABLE_FILE_TIMER="1")
    assert re.match(r"weft run: process \d+ let the timer 'step' expire and gets SIGKILL\n", done.stderr)


def test_the_summary_begins_with_rank_host_exception_and_line(script):
    text = "import os\nif os.environ['RANK'] == '1':\n    raise ValueError('boom')\nimport time; time.sleep(60)\n"
    path = script(text)
    done = run("--nproc-per-node", 2, path, code=1)
    first = next(line for line in done.stderr.splitlines() if line.startswith("rank "))
    assert first == f"rank 1 on {socket.gethostname()}: ValueError: boom ({path}:3)"
    assert "_entry.py" not in done.stderr, "tracebacks show the user's frames only"


def test_the_summary_names_the_programs_line_where_weft_raises(script):
    path = script("from weft.distributed import HashStore\nstore = HashStore()\nstore.add('a', 'b')\n")
    done = run(path, code=1)
    first = next(line for line in done.stderr.splitlines() if line.startswith("rank "))
    assert first.endswith(f"({path}:3)"), first
    assert "error_file" not in done.stderr, "the file is gone"
    kept = run("--log-dir", path.parent / "logs", script("import os\nos.environ['X']\n"), code=1)
    assert f"KeyError: 'X' ({path}:2)\n" in kept.stderr
    (named,) = re.findall("error_file: (.*)", kept.stderr)
    assert Path(named).is_file()


def test_a_worker_that_has_failed_first_may_end_last(script, tmp_path):
    """Others miss a worker that fails, and may be gone before it is."""
    path = script(
        "import atexit, os, select, sys\n"
        "told, heard = os.environ['TOLD'], os.environ['HEARD']\n"
        "if os.environ['RANK'] == '0':\n"
        "    open(told, 'w').write(str(os.getpid()))\n"
        "    open(heard).read()\n"
        "    raise RuntimeError('rank 1 has left')\n"
        "other = os.pidfd_open(int(open(told).read()))\n"
        "poll = select.poll()\n"
        "poll.register(other)\n"
        "atexit.register(poll.poll, 60_000)\n"
        "atexit.register(lambda: open(heard, 'w').close())\n"
        "sys.exit(3)\n"
    )
    pipes = {name: str(tmp_path / name) for name in ("TOLD", "HEARD")}
    for pipe in pipes.values():
        os.mkfifo(pipe)
    done = run("--nproc-per-node", 2, path, code=3, **pipes)
    first = next(line for line in done.stderr.splitlines() if line.startswith("rank "))
    assert first.startswith(f"rank 1 on {socket.gethostname()}: ")
    assert "RuntimeError: rank 1 has left" in done.stderr


def test_exit_codes_are_those_of_the_first_failure(script):
    run(script("import sys; sys.exit(7)"), code=7)
    run(script("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), code=128 + signal.SIGKILL)


WORLDS = """
import os
from datetime import timedelta
import weft, weft.distributed as dist
from weft.distributed import rpc
rank, sums = int(os.environ["RANK"]), []
if rank == 0:
    try:
        dist.init_process_group(world_size=2, rank=0, timeout=timedelta(seconds=0.05))  # nobody comes
    except RuntimeError:
        pass
for size in (3, 2, 3, 1, 2):
    if rank < size:
        dist.init_process_group(rank=rank, world_size=size, timeout=timedelta(seconds=60))
        x = weft.ones(1)
        dist.all_reduce(x)
        sums.append(int(x))
        if size == 3:
            dist.new_group([0, 2])
            dist.new_group([2, 1], use_local_synchronization=True)
        dist.destroy_process_group()
        rpc.init_rpc(f"w{rank}", rank=rank, world_size=size)
        assert rpc.rpc_sync(f"w{size - 1}", max, (rank, size)) == size
        rpc.shutdown()
print(f"{rank} {sums}\\n", end="")  # ranks share a pipe, and are not buffered: what is written in parts is mixed
"""


def test_worlds_of_different_sizes_follow_each_other_in_one_start(script):
    done = run("--nproc-per-node", 3, script(WORLDS))
    assert sorted(done.stdout.splitlines()) == ["0 [3, 2, 3, 1, 2]", "1 [3, 2, 3, 2]", "2 [3, 3]"]


def test_workers_are_started_again(script):
    text = "import os; n = int(os.environ['TORCHELASTIC_RESTART_COUNT']); print(n, flush=True); assert n == 2"
    assert run("--max-restarts", 2, script(text)).stdout == "0\n1\n2\n"


def test_signals_are_handed_on(script, tmp_path):
    text = (
        "import signal, sys, pathlib\n"
        "def stop(number, frame):\n    pathlib.Path(sys.argv[1]).write_text(str(number)); sys.exit(0)\n"
        "for number in (signal.SIGTERM, signal.SIGUSR1): signal.signal(number, stop)\n"
        "print('ready', flush=True)\nwhile True: signal.pause()\n"
    )
    for number in (signal.SIGTERM, signal.SIGUSR1):
        node = Node("--signals-to-handle", "SIGTERM,SIGUSR1", script(text), tmp_path / "told")
        assert node.line() == "ready"
        assert node.kill(number) == 128 + number
        assert (tmp_path / "told").read_text() == str(int(number))


# --- bad input: an error within seconds, without a traceback, that says what to change ---


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["--nproc-per-gnome=2", "x.py"], 2, r"did you mean --nproc-per-node\?"),
        (["--nproc", "2", "x.py"], 2, r"error: --nproc is no flag; did you mean --nproc-per-node\?$"),
        (["--rdzv_=x", "x.py"], 2, "--rdzv_ is no flag; did you mean --rdzv-backend, --rdzv-endpoint, --rdzv-id, --rd"),
        (["--lr", "1", "x.py"], 2, "error: unrecognized arguments: --lr; flags of the program go behind it$"),
        (["--max-restarts", "x", "x.py"], 2, "argument --max-restarts.*: invalid int value: 'x'"),
        ([], 2, "the following arguments are required: training_script"),
        (["nowhere.py"], 1, r"^weft run: error: nowhere\.py: no such script in /"),
        (["-m", "nowhere.inside"], 1, r"^weft run: error: nowhere\.inside: no such module; run in the folder"),
        (["--no-python", "nowhere"], 1, "^weft run: error: nowhere: no such program"),
        (["--no-python", "-m", "x"], 1, "Don't use both the '--no-python' flag and the '--module' flag"),
        (["--nnodes", "x", "SCRIPT"], 1, '^weft run: error: nnodes=x is not in "MIN:MAX" format'),
        (["--nproc-per-node", "many", "SCRIPT"], 1, "^weft run: error: Unsupported nproc_per_node value: many"),
        (["--redirects", "9", "SCRIPT"], 1, "^weft run: error: 9 does not match"),
        (["--redirects", "0:1,5:3", "SCRIPT"], 1, "--redirects: there is no local rank 5; .* makes local rank 0 alone"),
        (["--tee", "5:3", "--nproc-per-node", "2", "SCRIPT"], 1, "--tee: there is no .* 2 makes local ranks 0 to 1$"),
        (["--local-ranks-filter", "7", "SCRIPT"], 1, "--local-ranks-filter: there is no local rank 7"),
        (["--local-ranks-filter", "a", "SCRIPT"], 1, "must be a comma-separated list of integers.*got 'a'"),
        (["--max-restarts", "-1", "SCRIPT"], 1, "--max-restarts must be at least 0, got -1"),
        (["--monitor-interval", "0", "SCRIPT"], 1, "--monitor-interval must be more than 0 seconds, got 0$"),
        (["--signals-to-handle", "SIGTERM,SIGNOPE", "SCRIPT"], 1, "--signals-to-handle: 'SIGNOPE' is no signal"),
        (["--event-log-handler", "x", "SCRIPT"], 2, "argument --event-log-handler.*choose from.*console"),
        (["--log-dir", "/proc/none", "SCRIPT"], 1, "--log-dir /proc/none: .* No such file .*'/proc/none'; name"),
        (["--master-port", "99999", "SCRIPT"], 1, "'127.0.0.1:99999' must be an integer between 0 and 65535"),
        (["--shutdown-timeout", "-1", "SCRIPT"], 1, "shutdown_timeout must be non-negative, got -1"),
        (["--rdzv-backend", "carrier", "SCRIPT"], 1, "The rendezvous backend 'carrier' is not registered.*Known are"),
        (["--rdzv-conf", "a", "SCRIPT"], 1, "option 'a' must have a value specified: --rdzv-conf a=VALUE"),
        (["--standalone", "--nnodes", "2", "SCRIPT"], 1, "--standalone is for a job of one machine, but --nnodes is 2"),
        (["--nnodes", "1:2", "SCRIPT"], 1, "the static rendezvous needs a fixed number of nodes.*--rdzv-backend c10d"),
        (["--rdzv-conf", "join_timout=5", "SCRIPT"], 1, r"c10d .* no option 'join_timout'; did you mean join_timeou"),
        (["--master-addr", "a:b:c", "--master-port", "7", "SCRIPT"], 1, r"'a:b:c:7' must be.*HOST in --master-addr$"),
        (["--master-port", "0", "--nnodes", "2", "SCRIPT"], 1, "port 0 takes any free one.*; 2 nodes need a port"),
        (["--container-image", "x", "SCRIPT"], 1, "--container-image is for --print-manifest"),
        (["sh", "SCRIPT"], 1, "sh: no such script in .*; pass --no-python to run a program$"),
        (["--node-rank", "1", "SCRIPT"], 1, "--node-rank must be at least 0 and less than --nnodes 1, got 1"),
        (["--nnodes", "2", "--node-rank", "2", "SCRIPT"], 1, "--node-rank must be at least 0 and less than --nnodes 2"),
    ],
)
def test_bad_input(args, code, message, script):
    path = str(script(""))
    done = run(*[path if arg == "SCRIPT" else arg for arg in args], code=code)
    assert re.search(message, done.stderr, re.MULTILINE), done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_told(script):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("--master-port", port, script(""), code=1)
        assert f"node rank 0 cannot serve 127.0.0.1:{port}" in done.stderr
        assert done.stderr.rstrip().endswith(f"127.0.0.1', {port})); choose another --master-port")
        conf = ("--rdzv-conf", "is_host=1", "--rdzv-id", "job")
        done = run("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", *conf, script(""), code=1)
        assert "this node cannot serve the rendezvous" in done.stderr
        assert done.stderr.rstrip().endswith(f"127.0.0.1', {port})); choose another port in --rdzv-endpoint")
        conf = ("--rdzv-conf", "connect_timeout=0.1", "--rdzv-id", "job")
        done = run("--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}", *conf, script(""), code=1)
        assert done.stderr == (
            f"weft run: error: {NO_STORE} no rendezvous at localhost:{port} (the store at localhost:{port} took the "
            "connection and said nothing for 1 s); another program of this machine has the port; choose another port "
            "in --rdzv-endpoint\n"
        )


def test_nobody_at_the_endpoint_is_told(script):
    where = f"127.0.0.1:{free_port()}"
    conf = ("--rdzv-conf", "is_host=0,connect_timeout=0.1")
    done = run("--rdzv-backend", "c10d", "--rdzv-endpoint", where, "--rdzv-id", "x", *conf, script(""), code=1)
    assert done.stderr.startswith(f"weft run: error: {NO_STORE} no rendezvous at {where}")
    assert "is the address right (--rdzv-endpoint" in done.stderr
    assert done.stderr.count("is the address right") == 1
    host, port = where.split(":")
    static = ("--nnodes", 2, "--node-rank", 1, "--master-addr", host, "--master-port", port)
    done = run(*static, "--rdzv-conf", "connect_timeout=0.1", script(""), code=1)
    assert done.stderr.startswith(f"weft run: error: no rendezvous at {where}")


@pytest.fixture
def pair(script, tmp_path):
    """Two nodes at one port; the first runs until the test ends."""
    port, path = free_port(), script(WORKER)
    started = []

    def node(*flags, **env):
        started.append(Node("--master-port", port, *flags, path, tmp_path / "go", env=env | {"TMPDIR": str(tmp_path)}))
        return started[-1]

    yield node
    (tmp_path / "go").touch()
    for node in started:
        if node.process.poll() is None:
            node.kill()


def test_an_unknown_level_of_logs_is_told(script):
    done = run(script(""), code=1, LOGLEVEL="loud")
    assert done.stderr.startswith("weft run: error: LOGLEVEL=LOUD is no level; there are DEBUG, INFO,")


def test_a_wrong_variable_is_named(script):
    done = run(script(""), code=2, PET_MAX_RESTARTS="x")
    assert done.stderr.endswith("--max_restarts: invalid int value: 'x', given by PET_MAX_RESTARTS\n")


def test_flags_behind_the_program_are_told(script):
    done = run(script(SAY), "--nproc_per_node=2")
    assert (done.stdout, done.stderr) == (
        "0 --nproc_per_node=2\n",
        "weft run: --nproc_per_node=2 stands behind the program, which gets it; flags of `weft run` go before it\n",
    )


@pytest.mark.parametrize("backend", ["static", "c10d"])
def test_an_unknown_host_is_told(backend, script):
    where = {
        "static": ("--nnodes", 2, "--node-rank", 1, "--master-addr", "no.such.host", "--master-port", 1),
        "c10d": ("--rdzv-backend", "c10d", "--rdzv-endpoint", "no.such.host:1", "--rdzv-id", "x"),
    }[backend]
    done = run(*where, "--rdzv-conf", "connect_timeout=0.1", script(""), code=1)
    told = f"{NO_STORE} " if backend == "c10d" else ""
    assert done.stderr.startswith(f"weft run: error: {told}no rendezvous at no.such.host:1 (")
    assert "is the address right (--rdzv-endpoint, or --master-addr" in done.stderr


def test_missing_nodes_are_told(script):
    conf = ("--rdzv-endpoint", "127.0.0.1:0", "--rdzv-conf", "join_timeout=0.1", "--rdzv-id", "x")
    done = run("--nnodes", 2, "--rdzv-backend", "c10d", *conf, script(""), code=1)
    assert done.stderr.startswith("weft run: error: 1 of at least 2 nodes joined job 'x' within 0.1 s")
    assert "start the others with the same --rdzv-id and --rdzv-endpoint" in done.stderr


def test_nodes_that_wait_say_for_whom(pair):
    ports = [free_port(), free_port()]
    flags = "--nnodes", 2, "--rdzv-backend"
    nodes = [
        pair(*flags, "static", "--master-port", ports[0]),
        pair(*flags, "c10d", "--rdzv-endpoint", f"127.0.0.1:{ports[1]}"),
    ]
    where = f"--master-addr 127.0.0.1 --master-port {ports[0]}", f"--rdzv-endpoint 127.0.0.1:{ports[1]}"
    for node, told in zip(nodes, where, strict=True):
        assert node.error() == f"weft run: waiting for other nodes: 1 of 2 have come; start them with {told}"


def test_a_key_file_that_is_not_there_is_told_at_once(script):
    done = run("--standalone", script(""), code=1, WEFT_JOB_KEY="", WEFT_JOB_KEY_FILE="/none")
    assert done.stderr == (
        "weft run: error: the job's key cannot be read: [Errno 2] No such file or directory: '/none'; "
        "set WEFT_JOB_KEY, or mend the file\n"
    )


def test_a_wrong_job_key_is_told_by_c10d(script, tmp_path):
    flags = ("--nnodes", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "x")
    path = script("")
    first = Node(*flags, "--rdzv-conf", "is_host=1", path, env={"WEFT_JOB_KEY": "right" * 4, "TMPDIR": str(tmp_path)})
    second = Node(*flags, "--rdzv-conf", "is_host=0", path, env={"WEFT_JOB_KEY": "wrong" * 4, "TMPDIR": str(tmp_path)})
    try:
        assert second.end() == 1
        assert second.stderr.endswith(
            "has another job key; give all processes of a job the same WEFT_JOB_KEY (or WEFT_JOB_KEY_FILE), and all "
            "nodes the same --rdzv-id"
        )
    finally:
        first.kill()


def test_what_a_killed_launcher_has_left_goes_with_the_next_one(script, tmp_path):
    """One that has no workers yet, and so nobody who would tidy up after it."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {"TMPDIR": str(temporary), "LOGLEVEL": "INFO"}
    flags = ("--nnodes", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "x")
    waiting = Node(*flags, "--rdzv-conf", "is_host=1", script(""), env=env)
    while "waiting for" not in waiting.error():
        pass
    left = [path.name for path in temporary.glob("weft-*/*")]
    waiting.process.kill()
    waiting.end()
    assert [name.startswith("torchelastic_agent_") for name in left] == [True]
    assert [path.name for path in temporary.glob("weft-*/*")] == left
    run("--standalone", script(""), **env)
    assert os.listdir(temporary) == []


def test_a_wrong_job_key_is_told(pair):
    pair("--nnodes", 2, "--node-rank", 0, WEFT_JOB_KEY="right" * 4)
    second = pair("--nnodes", 2, "--node-rank", 1, WEFT_JOB_KEY="wrong" * 4)
    assert second.end() == 1
    assert "has another job key; give all processes of a job the same WEFT_JOB_KEY" in second.stderr
    assert "Traceback" not in second.stderr


def test_duplicate_ranks_and_other_worlds_are_told(pair):
    first = pair("--nnodes", 2, "--node-rank", 0)
    other = pair("--nnodes", 3, "--node-rank", 2)
    assert other.end() == 1
    assert other.stderr == "weft run: error: nodes disagree about --nnodes: 2 on node rank 0, 3 here"
    second = pair("--nnodes", 2, "--node-rank", 1)
    assert {first.worker()["RANK"], second.worker()["RANK"]} == {0, 1}
    third = pair("--nnodes", 2, "--node-rank", 1)
    assert third.end() == 1
    assert "two nodes have --node-rank 1: process" in third.stderr


def test_nothing_is_left(script, tmp_path):
    with nothing_left_in(Path("/dev/shm")):
        run("--nproc-per-node", 2, script(SAY), TMPDIR=str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
