"""An agent that is killed: one of two hosts is lost."""

import re
import signal

import pytest

from tests.distributed.elastic.nodes import until_gone
from tests.faults.job import Progress
from tests.faults.two import Two


@pytest.mark.parametrize(("backend", "victim"), [("c10d", 1), ("etcd", 0), ("etcd", 1)])
def test_the_other_host_goes_on(job, hosts, etcd, run, backend, victim):
    two = Two(job, hosts, etcd, backend, flags=("--max-restarts", 3))
    assert sorted(said["rank"] for said in two.workers) == [0, 1]
    Progress(job, 0).goes_on()
    two.nodes[victim].kill()
    until_gone(two.workers[victim]["pid"])
    left = two.nodes[1 - victim].worker()
    while left["size"] == 2:  # started anew before the other host was missed
        left = two.nodes[1 - victim].worker()
    assert (left["rank"], left["size"]) == (0, 1)
    Progress(job, left["round"]).goes_on()
    two.finish()


def test_the_host_of_a_c10d_rendezvous_ends_the_job(job, hosts, etcd, run):
    two = Two(job, hosts, etcd, "c10d", flags=("--max-restarts", 3))
    Progress(job, 0).goes_on()
    two.nodes[0].kill(signal.SIGKILL)
    assert two.nodes[1].end() == 1
    lost = r"^weft run: error: The connection to the C10d store has failed\. .* The node that serves the rendezvous has"
    assert re.search(lost, two.nodes[1].stderr, re.MULTILINE), two.nodes[1].stderr
    until_gone(two.workers[1]["pid"])
