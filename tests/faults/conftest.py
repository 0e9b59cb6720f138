"""Jobs that faults are done to. Each test is one fault, done RUNS times; what a job leaves behind fails its test."""

import os
import shutil
import subprocess
import uuid

import pytest

from tests._tools.etcd_cluster import Cluster
from tests.faults.hosts import ADDRESSES, Hosts
from tests.faults.job import Job

RUNS = int(os.environ.get("WEFT_FAULT_RUNS", "20"))


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(os.path.dirname(__file__)):
            item.add_marker(pytest.mark.faults)


def pytest_generate_tests(metafunc):
    if "run" in metafunc.fixturenames:
        metafunc.parametrize("run", range(RUNS))


@pytest.fixture
def job(tmp_path):
    """A job on this host; see `Job`."""
    job = Job(tmp_path)
    try:
        yield job
        job.check_nothing_is_left()
    finally:
        job.kill()


@pytest.fixture
def hosts(request):
    """Two hosts with a link between them, with the addresses of a parameter; skips where there are no namespaces."""
    if shutil.which("ip") is None:
        pytest.skip("no ip command here; to run these tests: apt-get install iproute2")
    try:
        hosts = Hosts(uuid.uuid4().hex[:8], getattr(request, "param", ADDRESSES))
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces cannot be made here (CAP_NET_ADMIN and CAP_SYS_ADMIN): {error.stderr}")
    yield hosts
    hosts.remove()


@pytest.fixture
def etcd(tmp_path, job):
    """Starts etcd with a number of members, on a host where one is given."""
    if shutil.which("etcd") is None:
        pytest.skip("no etcd server here; to run these tests: apt-get install etcd-server")
    made = []

    def start(size, prefix=(), address="127.0.0.1"):
        made.append(Cluster(tmp_path / "etcd", size, prefix, address))
        return made[-1]

    yield start
    for cluster in made:
        cluster.end()


@pytest.fixture
def small_disk(tmp_path):
    """Makes a folder on a disk of its own, by options of tmpfs; skips where that cannot be mounted."""
    made = []

    def mount(options):
        folder = tmp_path / "disk"
        folder.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "weft-faults", folder], capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"no disk can be mounted here (CAP_SYS_ADMIN): {done.stderr}")
        made.append(folder)
        return folder

    yield mount
    for folder in made:
        subprocess.run(["umount", folder], check=True)
