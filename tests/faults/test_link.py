"""The link between two hosts is cut, and healed after a while or never."""

import os
import re
import subprocess
import sys

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


SERVER = """
import sys
from weft._comm.stores.tcp_store import TCPStore
store = TCPStore("10.77.0.1", 29555, is_master=True, wait_for_workers=False)
print("up", flush=True)
sys.stdin.read()
"""
CLIENT = """
from datetime import timedelta
from weft._comm.stores.tcp_store import TCPStore
store = TCPStore("10.77.0.1", 29555)
print("up", flush=True)
try:
    store.wait(["never"], timedelta(hours=1))
except Exception as error:
    print(type(error).__name__, error)
"""
NOTICED = 50  # seconds: more than a connection may be silent, less than twice that


@pytest.mark.parametrize("way", Hosts.WAYS)
def test_who_waits_on_a_store_notices_that_its_host_is_gone(hosts, way):
    def on(host, script):
        return subprocess.Popen(
            [*hosts.on(host), sys.executable, "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"WEFT_JOB_KEY": "the key of the tests"},
        )

    with on(0, SERVER) as server:
        assert server.stdout.readline() == "up\n"
        with on(1, CLIENT) as client:
            assert client.stdout.readline() == "up\n"
            hosts.cut(way)
            said, told = client.communicate(timeout=NOTICED)
        server.communicate()
    assert said.startswith(
        "DistNetworkError the connection to the store at 10.77.0.1:29555 was lost: the network fails: "
    )
    assert told.startswith("the store at 10.77.0.1:29555 cannot be reached, trying again: ")
