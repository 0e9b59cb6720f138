"""Jobs whose processes are on two hosts, whatever their own names resolve to: groups, calls, kills and restarts."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from tests.distributed.elastic.nodes import until_gone
from tests.faults.hosts import ADDRESSES, IPV6_ADDRESSES, Hosts
from tests.faults.job import PROGRAMS, SOURCES
from tests.faults.two import Two

BETWEEN = PROGRAMS / "between.py"
PORT = 29500
WAITS = """
import weft, weft.distributed as dist
dist.init_process_group("gloo")
x = weft.ones(1)
dist.all_reduce(x)
print("together", flush=True)
try:
    while True:
        dist.all_reduce(x)
except RuntimeError as error:
    print(error, flush=True)
"""
SECONDS = 120


class Ranks:
    """The processes of a job without a launcher: rank r is on host r % 2."""

    def __init__(self, hosts, folder, names, size=2):
        self._machines = [hosts.machine(host, folder, names) for host in range(2)]
        self._homes = [folder / f"home{host}" for host in range(2)]
        for home in self._homes:
            home.mkdir()
        self.size = size
        self._processes = []

    def start(self, rank, *args, program=BETWEEN, **variables):
        """Start a rank of a program; its environment has the rank and the size."""
        environment = os.environ | {
            "HOME": str(self._homes[rank % 2]),
            "WEFT_JOB_KEY": "the key of the tests",
            "PYTHONPATH": os.pathsep.join([str(SOURCES), str(SOURCES.parent)]),
            "WEFT_COMPILE_CACHE": "",
            "RANK": str(rank),
            "WORLD_SIZE": str(self.size),
            **variables,
        }
        command = [*self._machines[rank % 2], sys.executable, program, *map(str, args)]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self._homes[0]
        )
        self._processes.append(process)
        return process

    def ends(self):
        """The exit code of each rank, what it has said, and its errors."""
        return [(process.wait(), *process.communicate(timeout=SECONDS)) for process in self._processes]

    def answers(self):
        """What the ranks have said of themselves, and whether XLA's Gloo was used, which says so."""
        ends = self.ends()
        assert not any(code for code, _, _ in ends), "\n".join(errors for _, _, errors in ends)
        self.used_gloo = all("[Gloo]" in output for _, output, _ in ends)
        return [json.loads(output.splitlines()[-1]) for _, output, _ in ends]

    def kill(self):
        for process in self._processes:
            process.kill()
            process.communicate()


@pytest.fixture
def ranks(hosts, tmp_path):
    """Makes `Ranks`, of which none runs afterwards."""
    made = []

    def make(names="unknown", size=2):
        made.append(Ranks(hosts, tmp_path, names, size))
        return made[-1]

    yield make
    for job in made:
        job.kill()


def check(answers, backend, size=2):
    """Look at what the ranks of `between.py` have said."""
    last = size - 1
    assert answers[last]["message"] == [0, 1, 2, 3]
    for rank, said in enumerate(answers):
        assert (said["rank"], said["backend"], said["before"]) == (rank, backend, 2)
        assert said["broadcast"] == [last, 7]
        assert said["gathered"] == [*range(size)] * 2
        assert said["exchanged"] == [10 * other + rank for other in range(size)]
        assert said["half"] == len(range(rank % 2, size, 2))
        assert said["weights"] == answers[0]["weights"]


@pytest.mark.parametrize("names", Hosts.NAMES)
@pytest.mark.parametrize("backend", ["gloo", "xla"])
def test_groups(ranks, backend, names):
    """XLA's Gloo goes by a host's own name, so it is used only where that leads there."""
    job = ranks(names)
    for rank in range(2):
        job.start(rank, backend, f"tcp://{ADDRESSES[0]}:{PORT}", rank, 2)
    check(job.answers(), backend)
    assert job.used_gloo is (backend == "xla" and names == "known")


@pytest.mark.parametrize("hosts", [IPV6_ADDRESSES], indirect=True)
@pytest.mark.parametrize("backend", ["gloo", "xla"])
def test_hosts_with_ipv6_alone(ranks, backend):
    job = ranks()
    for rank in range(2):
        job.start(rank, backend, f"tcp://[{IPV6_ADDRESSES[0]}]:{PORT}", rank, 2)
    check(job.answers(), backend)


def test_ranks_of_one_host_share_memory(ranks):
    job = ranks(size=4)
    for rank in range(4):
        job.start(rank, "gloo", MASTER_ADDR=ADDRESSES[0], MASTER_PORT=str(PORT))
    answers = job.answers()
    check(answers, "gloo", size=4)
    assert [said["groups"] for said in answers] == [["shm"]] * 4


def test_the_first_host_may_know_the_store_by_another_address(ranks):
    """A name of its own that resolves to 127.0.1.1 there, and to its address elsewhere."""
    job = ranks("loopback")
    for rank, host in ((0, "machine0"), (1, ADDRESSES[0])):
        job.start(rank, "gloo", MASTER_ADDR=host, MASTER_PORT=str(PORT))
    check(job.answers(), "gloo")


def test_an_interface_by_name(ranks, tmp_path):
    """Without a store at an address, no route tells how the hosts reach each other."""
    job = ranks()
    for rank in range(2):
        name = "WEFT_SOCKET_IFNAME" if rank else "GLOO_SOCKET_IFNAME"
        job.start(rank, "gloo", f"file://{tmp_path}/store", rank, 2, **{name: "nothing,eth0"})
    check(job.answers(), "gloo")


def test_an_interface_that_is_not_there(ranks):
    job = ranks()
    for rank in range(2):
        job.start(rank, "gloo", f"tcp://{ADDRESSES[0]}:{PORT}", rank, 2, GLOO_SOCKET_IFNAME="eth7")
    for code, _, errors in job.ends():
        assert code == 1
        assert "GLOO_SOCKET_IFNAME=eth7: this host has no interface of this name with an address; it has" in errors
        assert f"eth0 ({ADDRESSES[0]})" in errors or f"eth0 ({ADDRESSES[1]})" in errors


def test_an_interface_that_leads_nowhere(ranks):
    job = ranks()
    for rank in range(2):
        job.start(rank, "gloo", f"tcp://{ADDRESSES[0]}:{PORT}", rank, 2, WEFT_SOCKET_IFNAME="aside0")
    for code, _, errors in job.ends():
        assert code == 1
        assert "set WEFT_SOCKET_IFNAME (or GLOO_SOCKET_IFNAME) on each host to the name of its interface" in errors


def test_a_rank_whose_host_is_gone_is_named(ranks, hosts, tmp_path):
    """Nothing is sent any more, not even that the connections are closed."""
    job = ranks()
    program = tmp_path / "program.py"
    program.write_text(WAITS)
    processes = [job.start(rank, program=program, MASTER_ADDR=ADDRESSES[0], MASTER_PORT=str(PORT)) for rank in range(2)]
    assert processes[0].stdout.readline() == "together\n"
    hosts.cut("silent")
    processes[1].kill()
    output, errors = processes[0].communicate(timeout=SECONDS)
    assert re.search(r"^all_reduce.*: rank 1 has ended \(its connection was closed: ", output), output + errors


def test_remote_calls(ranks):
    job = ranks()
    for rank in range(2):
        job.start(
            rank,
            program=PROGRAMS / "calls_between.py",
            MASTER_ADDR=ADDRESSES[0],
            MASTER_PORT=str(PORT),
            WEFT_RPC_HOST=ADDRESSES[rank],
        )
    assert job.answers() == [{"small": 3, "large": [2, 300_000], "reference": 5}] * 2


@pytest.mark.parametrize("victim", range(2))
def test_a_worker_that_is_killed_is_started_anew(job, hosts, victim):
    two = Two(job, hosts, None, "c10d", flags=("--max-restarts", 3), program="members.py", missed=20, patience=20)
    assert [said["sum"] for said in two.workers] == [3, 3]
    os.kill(two.workers[victim]["pid"], signal.SIGKILL)
    again = two.together()
    assert [said["sum"] for said in again] == [3, 3]
    assert len({said["round"] for said in again}) == 1
    assert again[0]["round"] > two.workers[0]["round"]
    two.finish()


def test_a_host_that_is_killed_and_comes_back(job, hosts):
    """The other host goes on alone, by shared memory, and then with it."""
    two = Two(job, hosts, None, "c10d", flags=("--max-restarts", 5), program="members.py")
    hosts.cut("silent")
    two.nodes[1].kill()
    until_gone(two.workers[1]["pid"])
    alone = two.nodes[0].worker()
    while alone["size"] == 2:  # started anew before the other host was missed
        alone = two.nodes[0].worker()
    assert alone["sum"] == 1
    hosts.heal("silent")
    two.come_back(1)
    again = [two.nodes[1].worker()]
    while (said := two.nodes[0].worker())["round"] < again[0]["round"]:
        pass
    assert [one["sum"] for one in (said, *again)] == [3, 3]
    two.finish()
