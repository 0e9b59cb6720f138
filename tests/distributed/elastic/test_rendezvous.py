"""Rendezvous handlers in one process: nodes are threads over one store."""

import importlib
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from tests.waiting import until
from weft._comm.stores.store import HashStore
from weft._comm.stores.tcp_store import TCPStore
from weft._comm.transport.addresses import own_address
from weft.distributed.elastic.rendezvous import (
    DynamicRendezvousHandler,
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousHandlerRegistry,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousTimeout,
    RendezvousTimeoutError,
    get_rendezvous_handler,
    rendezvous_handler_registry,
    utils,
)
from weft.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from weft.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend
from weft.distributed.elastic.rendezvous.utils import (
    matches_machine_hostname,
    parse_rendezvous_config,
    parse_rendezvous_endpoint,
)

SOON = RendezvousTimeout(*(timedelta(seconds=seconds) for seconds in (20, 0.2, 0.2)))


@pytest.fixture
def nodes():
    """Makes handlers over one store; all are ended."""
    store, made = HashStore(), []

    def node(min_nodes=1, max_nodes=2, timeout=SOON, run_id="job", backend=None):
        backend = backend or C10dRendezvousBackend(store, run_id)
        handler = DynamicRendezvousHandler.from_backend(
            run_id, store, backend, min_nodes, max_nodes, "127.0.0.1", timeout, 0.1, 20
        )
        made.append(handler)
        return handler

    yield node
    for handler in made:
        handler.shutdown()


def meet(*handlers):
    with ThreadPoolExecutor(len(handlers)) as pool:
        return [found.result() for found in [pool.submit(handler.next_rendezvous) for handler in handlers]]


def test_two_nodes_get_ranks_and_one_store(nodes):
    first, second = meet(nodes(2, 2), nodes(2, 2))
    assert sorted([first.rank, second.rank]) == [0, 1]
    assert first.world_size == second.world_size == 2
    first.store.set("key", b"value")
    assert second.store.get("key") == b"value"
    assert first.bootstrap_store_info == second.bootstrap_store_info


def test_a_range_of_nodes_starts_after_the_last_call(nodes):
    (found,) = meet(nodes(1, 3))
    assert (found.rank, found.world_size, found.round) == (0, 1, 0)


def test_a_late_node_is_seen_and_let_in(nodes):
    early, late = nodes(1, 2), nodes(1, 2)
    meet(early)
    with ThreadPoolExecutor(1) as pool:
        joined = pool.submit(late.next_rendezvous)
        until(lambda: early.num_nodes_waiting() == 1, "nobody waits")
        again = early.next_rendezvous()
        assert (again.world_size, joined.result().world_size, again.round) == (2, 2, 1)


def test_a_node_that_leaves_is_noticed(nodes):
    stays, goes = nodes(1, 2), nodes(1, 2)
    meet(stays, goes)
    assert stays.num_nodes_lost() == 0
    assert goes.leave()
    until(lambda: stays.num_nodes_lost() == 1, "no node is lost")
    assert stays.next_rendezvous().world_size == 1


def test_too_few_nodes_are_named_at_the_join_timeout(nodes):
    lonely = nodes(2, 2, RendezvousTimeout(join=timedelta(seconds=0.1)))
    with pytest.raises(
        RendezvousTimeoutError,
        match=r"^1 of at least 2 nodes joined job 'job' within 0\.1 s \(127\.0\.0\.1\); start the others with the same "
        r"--rdzv-id and --rdzv-endpoint, or raise join_timeout in --rdzv-conf$",
    ):
        lonely.next_rendezvous()


def test_a_node_without_a_place_is_told_so(nodes):
    meet(nodes(1, 1))
    with pytest.raises(RendezvousTimeoutError, match=r"^no place among the 1 nodes of job 'job' became free within"):
        nodes(1, 1, RendezvousTimeout(join=timedelta(seconds=0.1))).next_rendezvous()


def test_a_closed_job_takes_nobody(nodes):
    first, second = nodes(1, 1), nodes(1, 1)
    meet(first)
    assert not second.is_closed()
    assert first.shutdown()
    assert second.is_closed()
    with pytest.raises(RendezvousClosedError, match=r"^job 'job' has ended on another node, so nobody may join it"):
        second.next_rendezvous()


def test_nodes_that_disagree_are_told_so(nodes):
    meet(nodes(1, 1))
    with pytest.raises(
        RendezvousStateError, match=r"disagree about --nnodes: others have \(1, 1\), this one has \(1, 2\)$"
    ):
        nodes(1, 2).next_rendezvous()


def test_a_node_that_is_ended_by_one_with_other_limits_is_told_why(nodes):
    first, second = nodes(2, 2), nodes(3, 3)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(first.next_rendezvous)
        until(lambda: first._member.status.num_members, "there is no round")
        with pytest.raises(RendezvousStateError):
            second.next_rendezvous()
        second.shutdown()
        told = r"^job 'job' has ended on .* nodes disagree about --nnodes: others have \(2, 2\), that one has \(3, 3\);"
        with pytest.raises(RendezvousClosedError, match=told):
            waiting.result()


def test_what_is_awaited_is_told_again_and_again(nodes, monkeypatch, caplog):
    monkeypatch.setattr(utils, "_PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(utils, "_REMINDER_SECONDS", 0.05)
    soon = RendezvousTimeout(join=timedelta(seconds=1))
    with pytest.raises(RendezvousTimeoutError):
        nodes(2, 3, soon).next_rendezvous()
    other = "waiting for other nodes: 1 of 2 to 3 have come; start them with the same --rdzv-endpoint"
    assert caplog.messages[:2] == [other, other]
    caplog.clear()
    meet(nodes(1, 1, run_id="full"))
    with pytest.raises(RendezvousTimeoutError):
        nodes(1, 1, soon, run_id="full").next_rendezvous()
    assert caplog.messages[0] == "waiting for a place among the 1 nodes of job 'full'"


class Unreachable(RendezvousBackend):
    """Works for a while."""

    def __init__(self, backend):
        self.backend, self.broken = backend, False

    name = "unreachable"

    def get_state(self):
        if self.broken:
            raise RendezvousConnectionError("the cable is cut")
        return self.backend.get_state()

    def set_state(self, state, token=None):
        return self.backend.set_state(state, token)


def test_a_backend_that_fails_for_long_is_an_error_and_a_short_failure_is_not(nodes):
    backend = Unreachable(C10dRendezvousBackend(HashStore(), "job"))
    handler = nodes(1, 1, backend=backend)
    meet(handler)
    backend.broken = True
    until(lambda: handler._executor.failure is not None, "the store is well")
    assert handler.num_nodes_waiting() == 0
    backend.broken = False
    until(lambda: handler._executor.failure is None, "the store is not reached again")
    backend.broken = True
    handler._keep_alive._patience = 0.2

    until(lambda: _error_of(handler.num_nodes_waiting) is not None, "no error is told")
    error = _error_of(handler.num_nodes_waiting)
    assert "the rendezvous has not answered for" in str(error)
    assert "the cable is cut" in str(error)


def test_joining_and_closing_outlast_a_short_failure(nodes):
    backend = Unreachable(C10dRendezvousBackend(HashStore(), "job"))
    handler = nodes(1, 1, RendezvousTimeout(close=timedelta(seconds=20)), backend=backend)
    backend.broken = True
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(handler.next_rendezvous)
        until(lambda: handler._executor.failure is not None, "the store is well")
        backend.broken = False
        assert found.result(20).world_size == 1
        backend.broken = True
        until(lambda: handler._executor.failure is not None, "the store is well")
        closed = pool.submit(handler.shutdown)
        backend.broken = False
        assert closed.result(20) is True
    assert handler.is_closed()


def test_closing_takes_no_longer_than_its_timeout(nodes):
    backend = Unreachable(C10dRendezvousBackend(HashStore(), "job"))
    handler = nodes(1, 1, backend=backend)
    meet(handler)
    backend.broken = True
    assert handler.shutdown() is False


def test_a_server_that_has_ended_is_told_at_once():
    server = TCPStore("127.0.0.1", 0, is_master=True)
    params = RendezvousParameters("c10d", f"127.0.0.1:{server.port}", "job", 1, 1, is_host=0)
    handler = get_rendezvous_handler(params)
    server.close()
    with pytest.raises(
        RendezvousConnectionError,
        match=r"^The connection to the C10d store has failed\. .* The node that serves the rendezvous has ended, and",
    ):
        handler.next_rendezvous()
    assert handler.shutdown() is False


def test_a_stopped_server_is_waited_for_as_long_as_the_options_say():
    code = (
        "from weft._comm.stores.tcp_store import TCPStore\n"
        "store = TCPStore('127.0.0.1', 0, is_master=True); print(store.port, flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        options = {"heartbeat_timeout": "0.2", "read_timeout": "0.3", "close_timeout": "0.2", "is_host": "0"}
        endpoint = f"127.0.0.1:{int(server.stdout.readline())}"
        handler = get_rendezvous_handler(RendezvousParameters("c10d", endpoint, "job", 1, 1, **options))
        server.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, server.pid, os.WSTOPPED | os.WNOWAIT)
        failed = r"^The connection to the C10d store has failed\. .* (0\.2 s|200ms)"
        with pytest.raises(RendezvousConnectionError, match=failed):
            handler.next_rendezvous()
        assert handler.shutdown() is False
        server.kill()


def test_a_node_is_known_by_its_address_on_the_way_to_the_rendezvous(tmp_path):
    for endpoint, same in (("127.0.0.1:0", True), (f"{tmp_path}/store", False)):
        options = {} if same else {"store_type": "file"}
        handler = get_rendezvous_handler(RendezvousParameters("c10d", endpoint, "job", 1, 1, **options))
        assert handler._node.addr == ("127.0.0.1" if same else own_address())
        handler.shutdown()


def _error_of(call):
    try:
        call()
    except RendezvousConnectionError as error:
        return error
    return None


def test_parameters_are_checked():
    with pytest.raises(ValueError, match=r"^The minimum number of rendezvous nodes \(0\) must be greater than zero\.$"):
        RendezvousParameters("c10d", "", "job", 0, 1)
    with pytest.raises(ValueError, match=r"^The rendezvous backend name must be a non-empty string\.$"):
        RendezvousParameters("", "", "job", 1, 1)
    with pytest.raises(ValueError, match="greater than or equal to the minimum"):
        RendezvousParameters("c10d", "", "job", 2, 1)
    params = RendezvousParameters("c10d", "", "job", 1, 1, a="yes", b="7", c="x")
    assert (params.get_as_bool("a"), params.get_as_int("b"), params.get("c"), params.get_as_int("d", 3)) == (
        True,
        7,
        "x",
        3,
    )
    with pytest.raises(ValueError, match="option 'c' does not represent a valid boolean value: 'x'"):
        params.get_as_bool("c")
    with pytest.raises(ValueError, match="option 'c' does not represent a valid integer value: 'x'"):
        params.get_as_int("c")


def test_the_registry_knows_its_backends():
    with pytest.raises(
        ValueError,
        match=r"^The rendezvous backend 'carrier' is not registered\. Did you forget to call `register`\? "
        r"Known are c10d, etcd, etcd-v2, static\.$",
    ):
        get_rendezvous_handler(RendezvousParameters("carrier", "", "job", 1, 1))
    registry = RendezvousHandlerRegistry()
    registry.register("mine", len)
    registry.register("mine", len)
    with pytest.raises(ValueError, match=r"^The rendezvous backend 'mine' cannot be registered with"):
        registry.register("mine", max)


def test_an_installed_package_offers_a_backend(nodes, tmp_path, monkeypatch):
    (tmp_path / "carrier-1.dist-info").mkdir()
    (tmp_path / "carrier-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: carrier\nVersion: 1\n")
    entry = "[torchrun.handlers]\npigeon = pigeon_backend:creator\n"
    (tmp_path / "carrier-1.dist-info" / "entry_points.txt").write_text(entry)
    (tmp_path / "pigeon_backend.py").write_text("made = []\ndef creator():\n    return lambda params: made[0]\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(rendezvous_handler_registry, "_registry", {})
    handler = nodes()
    monkeypatch.setattr(handler, "get_backend", lambda: "pigeon")
    importlib.import_module("pigeon_backend").made.append(handler)
    assert get_rendezvous_handler(RendezvousParameters("pigeon", "", "job", 1, 1)) is handler


class Silent(RendezvousBackend):
    """A backend that does not tell whether the value was set."""

    present = None

    @property
    def name(self):
        return "silent"

    def get_state(self):
        return self.present

    def set_state(self, state, token=None):
        if token == (self.present and self.present[1]):
            self.present = (state, (token or 0) + 1)


def test_a_backend_need_not_tell_whether_the_value_was_set(nodes):
    (found,) = meet(nodes(1, 2, backend=Silent()))
    assert (found.rank, found.world_size) == (0, 1)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, ("localhost", 1)),
        ("", ("localhost", 1)),
        ("node", ("node", 1)),
        ("node:29", ("node", 29)),
        ("10.0.0.1:0", ("10.0.0.1", 0)),
        ("[::1]:29", ("::1", 29)),
        ("::1", ("::1", 1)),
        ("[::1]", ("::1", 1)),
        ("a_b-1.c:2", ("a_b-1.c", 2)),
        ("[fe80::1%eth0]:3", ("fe80::1%eth0", 3)),
        (" [a]:4 ", ("a", 4)),
    ],
)
def test_endpoints(text, found):
    assert parse_rendezvous_endpoint(text, 1) == found


@pytest.mark.parametrize(
    ("text", "error"),
    [
        *(
            (f"node:{port}", "'node:.*' must be an integer between 0 and 65535.$")
            for port in ("", "x", "-1", "+1", " 1", "1_0", "\N{FULLWIDTH DIGIT ONE}", "65536", "000001")
        ),
        *(
            (f"{host}:29", "^The hostname of the rendezvous endpoint '.*' must be a dot-separated list of labels")
            for host in ("", "~", "a b", "a@b", "a/b", "a,b", "$HOST", "*", "[", "[]", "[a", "a]", "::1]")
        ),
        ("a:b:c", r"'a:b:c' must be .*; write HOST:PORT or \[IPV6\]:PORT in --rdzv-endpoint, HOST in --master-addr$"),
    ],
)
def test_wrong_endpoints(text, error):
    with pytest.raises(ValueError, match=error):
        parse_rendezvous_endpoint(text, 1)


def test_options():
    assert parse_rendezvous_config(" a=1, b = x ") == {"a": "1", "b": "x"}
    assert parse_rendezvous_config("") == {}
    assert parse_rendezvous_config("  ") == {}
    with pytest.raises(ValueError, match="option 'a' must have a value specified: --rdzv-conf a=VALUE"):
        parse_rendezvous_config("b=1,a")


@pytest.mark.parametrize("text", ["=1", "a=1,", "a=1,,b=2", "a=1, ,b=2", " , "])
def test_options_without_a_name(text):
    with pytest.raises(ValueError, match="must be in format"):
        parse_rendezvous_config(text)


@pytest.mark.parametrize(
    ("backend", "option", "error"),
    [
        ("c10d", "join_timout", r"did you mean join_timeout\? --rdzv-conf takes close_timeout, connect_timeout, "),
        ("etcd", "protocl", r"did you mean protocol\? --rdzv-conf takes ca_cert, cacert, cert, close_timeout, "),
        ("static", "zzz", "--rdzv-conf takes connect_timeout, rank, timeout$"),
    ],
)
def test_unknown_options_of_known_backends_are_refused(backend, option, error):
    with pytest.raises(ValueError, match=rf"^The {backend} rendezvous has no option '{option}'; {error}"):
        get_rendezvous_handler(RendezvousParameters(backend, "localhost:0", "job", 1, 1, timeout=9, **{option: "5"}))


def test_times_and_counts_are_checked():
    def handler(**options):
        return get_rendezvous_handler(RendezvousParameters("c10d", "localhost:0", "job", 1, 1, **options))

    with pytest.raises(ValueError, match=r"^The .* option 'connect_timeout' does not represent a number of seconds"):
        handler(connect_timeout="nan")
    for options, got in (({"keep_alive_interval": "0"}, "0 and 3"), ({"keep_alive_max_attempt": "0"}, "5 and 0")):
        with pytest.raises(ValueError, match=rf"^keep_alive_interval must be more than 0 s, and .*, got {got}$"):
            handler(**options)


def test_own_addresses_are_known():
    assert matches_machine_hostname("localhost")
    assert matches_machine_hostname("127.0.0.1")
    assert matches_machine_hostname("::1")
    assert not matches_machine_hostname("192.0.2.7")


def test_a_file_serves_as_the_store(tmp_path):
    made = [
        get_rendezvous_handler(RendezvousParameters("c10d", str(tmp_path / "f"), "job", 2, 2, store_type="file"))
        for _ in range(2)
    ]
    first, second = meet(*made)
    assert sorted([first.rank, second.rank]) == [0, 1]
    assert first.bootstrap_store_info == second.bootstrap_store_info
    assert all(handler.shutdown() for handler in made)


def test_an_unknown_kind_of_store_is_refused():
    with pytest.raises(ValueError, match=r"^Invalid store type 'cloud'\. Currently only file and tcp are supported\.$"):
        get_rendezvous_handler(RendezvousParameters("c10d", "", "job", 1, 1, store_type="cloud"))


@pytest.mark.parametrize("backend", ["c10d", "etcd"])
@pytest.mark.parametrize("seconds", [0, -1])
def test_stores_need_time_to_answer(backend, seconds):
    params = RendezvousParameters(backend, "localhost:1", "run", 1, 1, read_timeout=seconds)
    with pytest.raises(ValueError, match=r"^The read timeout must be a positive integer\."):
        params.read_seconds()
