"""Several agents over one rendezvous, by real processes: they meet, fail, die, come late, and are told to end."""

import os
import signal

import pytest

from tests.distributed.elastic.nodes import WORKER, Node, until_gone
from weft.distributed.elastic.rendezvous.utils import free_port

CONF = "keep_alive_interval=0.2,keep_alive_max_attempt=4"


@pytest.fixture
def job(tmp_path):
    """Starts nodes of one job; `job.finish()` lets all workers end."""
    (tmp_path / "worker.py").write_text(WORKER)

    class Job:
        def __init__(self):
            self.nodes = []
            self.endpoint = f"127.0.0.1:{free_port()}"

        def node(self, nnodes, *flags, host=False, last_call=20):
            conf = f"{CONF},is_host={int(host)},last_call_timeout={last_call}"
            node = Node(
                "--nnodes",
                nnodes,
                "--rdzv-backend",
                "c10d",
                "--rdzv-endpoint",
                self.endpoint,
                "--rdzv-id",
                "job",
                "--rdzv-conf",
                conf,
                *flags,
                tmp_path / "worker.py",
                tmp_path / "go",
                env={"TMPDIR": str(tmp_path)},  # an agent that is killed leaves its folder
            )
            self.nodes.append(node)
            return node

        def finish(self):
            (tmp_path / "go").touch()

    made = Job()
    yield made
    for node in made.nodes:
        if node.process.poll() is None:
            node.kill()


def together(*nodes):
    """The next worker of each node, ordered by rank."""
    return sorted((node.worker() for node in nodes), key=lambda worker: worker["RANK"])


def test_two_agents_share_ranks_by_role_and_finish(job):
    first = job.node(2, "--nproc-per-node", "2", "--role", "trainer", host=True)
    second = job.node(2, "--nproc-per-node", "1", "--role", "reader")
    trainers, readers = [first.worker(), first.worker()], [second.worker()]
    workers = sorted(trainers + readers, key=lambda worker: worker["RANK"])
    assert [worker["RANK"] for worker in workers] == [0, 1, 2]
    assert {worker["WORLD_SIZE"] for worker in workers} == {3}
    assert sorted(worker["ROLE_RANK"] for worker in trainers) == [0, 1]
    assert {(worker["ROLE_NAME"], worker["ROLE_WORLD_SIZE"]) for worker in workers} == {("trainer", 2), ("reader", 1)}
    assert {worker["GROUP_RANK"] for worker in workers} == {0, 1}
    job.finish()
    assert [first.end(), second.end()] == [0, 0], first.stderr + second.stderr


def test_a_killed_worker_restarts_the_workers_of_all_nodes(job):
    first, second = job.node(2, "--max-restarts", 1, host=True), job.node(2, "--max-restarts", 1)
    workers = {node: node.worker() for node in (first, second)}
    os.kill(workers[second]["pid"], signal.SIGKILL)
    again = together(first, second)
    assert [worker["RANK"] for worker in again] == [0, 1]
    assert {worker["WEFT_RENDEZVOUS_ROUND"] for worker in again} == {1}
    assert sorted(worker["TORCHELASTIC_RESTART_COUNT"] for worker in again) == [0, 1]
    job.finish()
    assert [first.end(), second.end()] == [0, 0], first.stderr + second.stderr


def test_a_killed_agent_takes_its_workers_along_and_the_others_go_on(job):
    first, second = job.node("1:2", host=True), job.node("1:2")
    lost = {node: node.worker() for node in (first, second)}[second]
    second.kill()
    until_gone(lost["pid"])
    left = first.worker()
    assert (left["RANK"], left["WORLD_SIZE"], left["TORCHELASTIC_RESTART_COUNT"]) == (0, 1, 0)
    job.finish()
    assert first.end() == 0, first.stderr


def test_a_late_node_is_taken_in(job):
    early = job.node("1:2", host=True, last_call=0.1)
    assert early.worker()["WORLD_SIZE"] == 1
    late = job.node("1:2")
    assert [worker["WORLD_SIZE"] for worker in together(early, late)] == [2, 2]
    assert early.error() == "weft run: a node has joined; starting the workers again with 2 nodes"
    late.kill()
    assert early.worker()["WORLD_SIZE"] == 1
    assert early.error() == "weft run: a node has left; starting the workers again with 1 node"
    job.finish()
    assert early.end() == 0, early.stderr


def test_a_signal_ends_one_node_and_the_others_go_on_at_once(job):
    first, second = job.node("1:2", host=True), job.node("1:2")
    workers = {node: node.worker() for node in (first, second)}
    assert second.kill(signal.SIGTERM) == 128 + signal.SIGTERM
    assert second.stderr.endswith("weft run: ended by SIGTERM")
    until_gone(workers[second]["pid"])
    assert first.worker()["WORLD_SIZE"] == 1
    job.finish()
    assert first.end() == 0, first.stderr


def test_an_agent_that_was_stopped_comes_back(job):
    first, second = job.node("1:2", host=True), job.node("1:2")
    assert [worker["WORLD_SIZE"] for worker in together(first, second)] == [2, 2]
    second.process.send_signal(signal.SIGSTOP)
    assert first.worker()["WORLD_SIZE"] == 1
    second.process.send_signal(signal.SIGCONT)
    assert [worker["WORLD_SIZE"] for worker in together(first, second)] == [2, 2]
    job.finish()
    assert [first.end(), second.end()] == [0, 0], first.stderr + second.stderr


def test_nodes_learn_that_the_job_has_failed_elsewhere(job):
    first, second = job.node(2, host=True), job.node(2, "--max-restarts", 3)
    workers = {node: node.worker() for node in (first, second)}
    os.kill(workers[first]["pid"], signal.SIGKILL)
    assert first.end() == 128 + signal.SIGKILL
    os.kill(workers[second]["pid"], signal.SIGKILL)  # what a collective without its peer comes to
    assert second.end() == 1
    assert "weft run: error: " in second.stderr
    assert "Traceback" not in second.stderr


def test_nodes_with_other_limits_are_refused(job):
    first = job.node("1:2", host=True, last_call=0.1)
    first.worker()
    second = job.node("1:3")
    assert second.end() == 1
    assert second.stderr.endswith("disagree about --nnodes: others have (1, 2), this one has (1, 3)")
    job.finish()
    assert first.end() == 0, first.stderr


FINISHES_EARLY = """
import os, sys, time
rank, round = int(os.environ["RANK"]), int(os.environ["WEFT_RENDEZVOUS_ROUND"])
sys.stdout.write(f"{rank} in {round}\\n")
if rank == 1 and round == 0:
    end = time.monotonic() + 60
    while not os.path.exists(sys.argv[1]):
        assert time.monotonic() < end, "the other worker has not finished"
        time.sleep(0.01)
    sys.exit(1)
open(sys.argv[1], "w").close()
"""


def test_workers_that_have_finished_run_again_when_others_fail(job, tmp_path):
    (tmp_path / "worker.py").write_text(FINISHES_EARLY)
    first, second = job.node(2, "--max-restarts", 1, host=True), job.node(2, "--max-restarts", 1)
    assert [first.end(), second.end()] == [0, 0], first.stderr + second.stderr
    said = [first.line(), first.line(), second.line(), second.line()]
    assert sorted(said) == ["0 in 0", "0 in 1", "1 in 0", "1 in 1"]


MEETS_AGAIN = """
import os, sys
import weft.distributed as dist
from weft.distributed import rpc
rank, restarts, again = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"], os.path.exists(sys.argv[1])
dist.init_process_group("gloo")
rpc.init_rpc(f"w{rank}", rank=rank, world_size=2)
told = rpc.rpc_sync(f"w{1 - rank}", max, (rank, 1))
if not again:
    dist.barrier()
    if rank == 1:
        open(sys.argv[1], "w").close()
        os._exit(9)
    dist.barrier()  # fails, as the other rank has ended
rpc.shutdown()
sys.stdout.write(f"{told} after {restarts}\\n")
"""


def test_workers_of_nodes_with_different_counts_of_restarts_meet(job, tmp_path):
    (tmp_path / "worker.py").write_text(MEETS_AGAIN)
    first, second = job.node(2, "--max-restarts", 1, host=True), job.node(2, "--max-restarts", 1)
    assert [first.end(), second.end()] == [0, 0], first.stderr + second.stderr
    said = {first.line(), second.line()}
    assert said in ({"1 after 0", "1 after 1"}, {"1 after 1"})  # the worker that lives may end before it is stopped
