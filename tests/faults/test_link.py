"""The link between two hosts is cut, and healed after a while or never."""

import re

import pytest

from tests.faults.hosts import Hosts
from tests.faults.job import Progress
from tests.faults.two import PATIENCE, Two

BACKENDS = pytest.mark.parametrize("backend", ["c10d", "etcd"])


def way(run):
    return Hosts.WAYS[run % len(Hosts.WAYS)]


@BACKENDS
def test_a_short_cut_is_not_noticed(job, hosts, etcd, run, backend):
    two = Two(job, hosts, etcd, backend, missed=30, patience=30)
    steps = Progress(job, 0)
    steps.goes_on()
    hosts.cut(way(run))
    steps.stand_still(1.5)
    hosts.heal(way(run))
    steps.goes_on()
    two.finish()
    assert [node.lines.qsize() for node in two.nodes] == [1, 1]  # no worker was started anew


@BACKENDS
def test_a_host_that_was_missed_comes_back(job, hosts, etcd, run, backend):
    two = Two(job, hosts, etcd, backend, flags=("--max-restarts", 3))
    Progress(job, 0).goes_on()
    hosts.cut(way(run))
    alone = two.nodes[0].worker()
    assert (alone["rank"], alone["size"]) == (0, 1)
    Progress(job, alone["round"]).goes_on()
    hosts.heal(way(run))
    again = two.together()
    assert ([said["size"] for said in again], len({said["round"] for said in again})) == ([2, 2], 1)
    Progress(job, again[0]["round"]).goes_on()
    two.finish()


@BACKENDS
def test_a_link_that_is_not_healed_ends_the_node_that_is_cut_off(job, hosts, etcd, run, backend):
    two = Two(job, hosts, etcd, backend)
    Progress(job, 0).goes_on()
    hosts.cut(way(run))
    assert two.nodes[0].worker()["size"] == 1
    assert two.nodes[1].end() == 1
    ended = rf"^weft run: error: the rendezvous has not answered for {PATIENCE} s \(.*is the process that serves"
    assert re.search(ended, two.nodes[1].stderr, re.MULTILINE), two.nodes[1].stderr
    two.finish()
