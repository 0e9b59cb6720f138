"""The etcd backend over real etcd servers: one member, and three that lose their leader."""

import re
import shutil
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from time import monotonic

import pytest

from tests._tools.etcd_cluster import PATIENT, Cluster
from tests.distributed.elastic.nodes import WORKER, Node
from weft._tools.etcd.backend import EtcdRendezvousBackend
from weft._tools.etcd.client import EtcdClient, EtcdOptions
from weft._tools.etcd.rendezvous import (
    EtcdRendezvous,
    EtcdRendezvousHandler,
    create_rdzv_handler,
)
from weft._tools.etcd.server import EtcdServer
from weft._tools.etcd.store import EtcdStore
from weft.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousParameters,
    RendezvousTimeoutError,
    get_rendezvous_handler,
)
from weft.distributed.elastic.rendezvous.utils import free_port
from weft.errors import DistStoreError

if shutil.which("etcd") is None:
    pytest.skip("no etcd server here; to run these tests: apt-get install etcd-server", allow_module_level=True)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("etcd"), 1)
    yield cluster
    cluster.end()


@pytest.fixture
def three(tmp_path):
    cluster = Cluster(tmp_path, 3)
    yield cluster
    cluster.end()


def test_states_are_compared_and_set(etcd):
    backend = EtcdRendezvousBackend(etcd.client, "swap")
    assert backend.get_state() is None
    state, token, was_set = backend.set_state(b"one")
    assert (state, was_set) == (b"one", True)
    assert backend.get_state() == (b"one", token)
    assert backend.set_state(b"two") == (b"one", token, False)
    assert backend.set_state(b"two", token)[::2] == (b"two", True)
    assert backend.set_state(b"three", token)[::2] == (b"two", False)
    assert backend.set_state(b"three", "of nowhere")[::2] == (b"two", False)
    assert EtcdRendezvousBackend(etcd.client, "empty").set_state(b"one", "of nowhere") is None


def test_a_store_in_etcd(etcd):
    store, other = EtcdStore(etcd.client, "/a/"), EtcdStore(etcd.client, "/b/")
    store.set("key", "value")
    assert (store.get("key"), store.check(["key"]), other.check(["key"])) == (b"value", True, False)
    assert [store.add("n", 2), store.add("n", 3)] == [2, 5]
    assert store.compare_set("c", "", "1") == b"1"
    assert store.compare_set("c", "2", "3") == b"1"
    assert store.compare_set("absent", "2", "3") == b"2"
    store.append("key", b"s")
    store.multi_set(["x", "y"], ["1", "2"])
    assert store.multi_get(["key", "x", "y"]) == [b"values", b"1", b"2"]
    assert (sorted(store.list_keys()), store.num_keys()) == (["c", "key", "n", "x", "y"], 5)
    assert [store.delete_key("x"), store.delete_key("x")] == [True, False]
    many = {f"many/{at}": b"%d" % at for at in range(300)}  # more than one request of etcd takes
    store.multi_set(list(many), list(many.values()))
    assert store.values_under("many/") == many
    assert store.multi_get(list(many)) == list(many.values())
    assert (store.multi_get([]), store.check([])) == ([], True)
    with pytest.raises(DistStoreError, match=r"^wait timeout after 50ms, keys: /absent"):
        store.wait(["absent"], timedelta(milliseconds=50))


class Cut:
    """Stands before an etcd server and loses its next answers: the server has them done, and nobody hears of it."""

    def __init__(self, port):
        self._to = ("127.0.0.1", port)
        self.losses = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while True:
            near = self._listener.accept()[0]
            with near:
                if not (asked := self._request(near)):
                    return
                with socket.create_connection(self._to) as far:
                    far.sendall(asked.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\nConnection: close\r\n", 1))
                    answer = b"".join(iter(lambda: far.recv(1 << 16), b""))
                if self.losses and b"/kv/txn" in asked:
                    self.losses -= 1
                else:
                    near.sendall(answer)

    def _request(self, near):
        asked = near.recv(1 << 16)
        length = re.search(rb"Content-Length: (\d+)", asked)
        while length and len(asked.partition(b"\r\n\r\n")[2]) < int(length[1]):
            asked += near.recv(1 << 16)
        return asked

    def end(self):
        socket.create_connection(self._listener.getsockname()).close()
        self._thread.join()
        self._listener.close()


def test_what_changes_a_value_does_so_once_when_answers_are_lost(etcd):
    etcd.client.get("up")
    cut = Cut(etcd.ports[0])
    try:
        client = EtcdClient(cut.endpoint, PATIENT)
        store, backend = EtcdStore(client, "/once/"), EtcdRendezvousBackend(client, "once")
        for change, found in (
            (lambda: store.add("n", 2), 2),
            (lambda: store.add("n", 3), 5),
            (lambda: [store.append("text", "a"), store.append("text", "b"), store.get("text")][2], b"ab"),
            (lambda: store.compare_set("c", "", "1"), b"1"),
            (lambda: backend.set_state(b"one")[::2], (b"one", True)),
        ):
            cut.losses = 2
            assert change() == found
            assert cut.losses == 0
    finally:
        cut.end()


def test_a_server_of_ones_own(tmp_path, monkeypatch):
    server = EtcdServer(str(tmp_path / "data"))
    server.start(stderr=subprocess.DEVNULL)
    try:
        assert server.get_endpoint() == f"{server.get_host()}:{server.get_port()}"
        server.get_client().put("/k", b"v")
        assert server.get_client().get("/k").value == b"v"
    finally:
        server.stop()
        server.stop()
    with pytest.raises(RendezvousConnectionError):
        EtcdClient(server.get_endpoint(), EtcdOptions(connect_timeout=0.1))
    assert list((tmp_path / "data").iterdir())
    monkeypatch.setenv("TORCHELASTIC_ETCD_BINARY_PATH", shutil.which("false"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"^Etcd server process exited with the code: 1$"):
        EtcdServer().start(num_retries=2)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    monkeypatch.setenv("TORCHELASTIC_ETCD_BINARY_PATH", "no-etcd")
    with pytest.raises(FileNotFoundError, match=r"^no-etcd: there is no such program; install etcd"):
        EtcdServer().start()


def test_a_wait_ends_when_another_thread_sets_the_key(etcd):
    store = EtcdStore(etcd.client, "/w/")
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(store.get, "late")
        store.set("late", "now")
        assert found.result(20) == b"now"


def test_a_wait_goes_on_when_nothing_can_be_watched(etcd):
    client = EtcdClient(etcd.endpoints, PATIENT)
    key, revision = "/watched", client.get_all(["/watched"])[1]
    begun = monotonic()
    client.await_change(key, revision, 0.01)
    assert monotonic() - begun >= 0.01  # nothing has changed
    client.put(key, b"1")
    client.await_change(key, revision, 20)
    assert monotonic() - begun < 20  # it had changed
    client._endpoints = [("127.0.0.1", free_port())]
    begun = monotonic()
    client.await_change(key, revision, 0.01)
    assert 0.01 <= monotonic() - begun < 20


def test_nodes_meet_in_etcd(etcd):
    made = [
        get_rendezvous_handler(RendezvousParameters("etcd", etcd.endpoints, "meet", 2, 2, "127.0.0.1"))
        for _ in range(2)
    ]
    with ThreadPoolExecutor(2) as pool:
        first, second = (found.result(20) for found in [pool.submit(handler.next_rendezvous) for handler in made])
    assert sorted([first.rank, second.rank]) == [0, 1]
    assert first.bootstrap_store_info == second.bootstrap_store_info
    for handler in made:
        assert handler.shutdown()
    assert made[0].is_closed()


def ranks_of(*handlers):
    with ThreadPoolExecutor(len(handlers)) as pool:
        found = [one.result(20) for one in [pool.submit(handler.next_rendezvous) for handler in handlers]]
    return sorted((info.rank, info.world_size) for info in found)


def former(etcd, run_id="former", least=2, most=2, timeout=20, last_call=5):
    impl = EtcdRendezvous(EtcdClient(etcd.endpoints, PATIENT), "/former", run_id, least, most, timeout, last_call)
    return EtcdRendezvousHandler(impl, "127.0.0.1")


def test_nodes_meet_under_the_former_names(etcd):
    params = RendezvousParameters(
        "etcd",
        etcd.endpoints,
        "former",
        2,
        2,
        "127.0.0.1",
        timeout="20",
        last_call_timeout="5",
        etcd_prefix="/former",
        protocol="http",
    )
    first, second = create_rdzv_handler(params), former(etcd)
    assert isinstance(first, EtcdRendezvousHandler)
    assert (first.get_backend(), first.get_run_id(), first.is_closed()) == ("etcd", "former", False)
    assert ranks_of(first, second) == [(0, 2), (1, 2)]
    assert etcd.client.get("/former/former") is not None
    assert first.num_nodes_waiting() == 0
    second.set_closed()
    assert first.is_closed()
    with pytest.raises(RendezvousClosedError):
        first.next_rendezvous()
    assert first.shutdown()
    assert second.shutdown()


def test_the_former_names_wait_as_long_as_they_are_told(etcd):
    handlers = [
        former(etcd, "alone", timeout=0.1),
        get_rendezvous_handler(RendezvousParameters("etcd", etcd.endpoints, "alone too", 2, 2, timeout="0.1")),
    ]
    for handler in handlers:
        with pytest.raises(RendezvousTimeoutError, match=r"^1 of at least 2 nodes joined job 'alone.*within 0\.1 s"):
            handler.next_rendezvous()
        handler.shutdown()
    handler = former(etcd, "elastic", 1, 2, last_call=0.1)
    assert ranks_of(handler) == [(0, 1)]
    handler.shutdown()
    both = {"timeout": "0.1", "join_timeout": "20"}
    handler = get_rendezvous_handler(RendezvousParameters("etcd", etcd.endpoints, "both", 1, 1, "127.0.0.1", **both))
    assert handler.settings.timeout.join == timedelta(seconds=20)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"min_workers": "1"}, r"^The etcd rendezvous has no option 'min_workers'; --rdzv-conf takes ca_cert"),
        ({"protocol": "ftp"}, r"^the protocol of etcd must be http or https, got 'ftp'"),
        ({"timeout": "soon"}, r"'join_timeout' does not represent a number of seconds: 'soon'"),
        ({"timeout": "-1"}, r"^The join timeout \(.*\) must be positive"),
    ],
)
def test_options_of_the_former_names_are_checked(etcd, options, error):
    with pytest.raises(ValueError, match=error):
        create_rdzv_handler(RendezvousParameters("etcd", etcd.endpoints, "job", 1, 1, **options))


def test_the_name_of_pytorchs_present_backend(etcd):
    made = [
        get_rendezvous_handler(RendezvousParameters("etcd-v2", etcd.endpoints, "v2", 2, 2, "127.0.0.1"))
        for _ in range(2)
    ]
    assert made[0].get_backend() == "etcd-v2"
    assert ranks_of(*made) == [(0, 2), (1, 2)]
    for handler in made:
        assert handler.shutdown()


def test_nobody_at_the_endpoint_is_told_in_seconds():
    params = RendezvousParameters("etcd", f"127.0.0.1:{free_port()}", "job", 1, 1, connect_timeout="0.2")
    with pytest.raises(RendezvousConnectionError, match=r"^etcd does not answer at any of .*is --rdzv-endpoint right"):
        get_rendezvous_handler(params)


def test_a_dead_endpoint_is_passed_over_and_then_asked_last(etcd):
    dead = f"127.0.0.1:{free_port()}"
    client = EtcdClient(f"{dead},{etcd.endpoints}", PATIENT)
    client.put("/endpoints", b"1")
    assert client.get("/endpoints").value == b"1"
    assert client._endpoints == [("127.0.0.1", etcd.ports[0]), ("127.0.0.1", int(dead.rpartition(":")[2]))]


@pytest.mark.slow
@pytest.mark.soak
def test_a_job_survives_the_loss_of_the_leader_of_three(three, tmp_path):
    (tmp_path / "worker.py").write_text(WORKER)
    conf = "last_call_timeout=20,keep_alive_interval=0.5,keep_alive_max_attempt=10"
    nodes = [
        Node(
            "--nnodes",
            "1:2",
            "--rdzv-backend",
            "etcd",
            "--rdzv-endpoint",
            three.endpoints,
            "--rdzv-id",
            "job",
            "--rdzv-conf",
            conf,
            "--local-addr",
            "127.0.0.1",
            tmp_path / "worker.py",
            tmp_path / "go",
            env={"TMPDIR": str(tmp_path)},
        )
        for _ in range(2)
    ]
    try:
        assert [node.worker()["WORLD_SIZE"] for node in nodes] == [2, 2]
        three.kill_leader()
        nodes[1].kill()
        left = nodes[0].worker()
        assert (left["RANK"], left["WORLD_SIZE"]) == (0, 1)
        (tmp_path / "go").touch()
        assert nodes[0].end() == 0, nodes[0].stderr
    finally:
        for node in nodes:
            if node.process.poll() is None:
                node.kill()


def test_no_threads_are_left(etcd):
    assert [thread.name for thread in threading.enumerate() if thread.name == "rendezvous keep-alive"] == []
