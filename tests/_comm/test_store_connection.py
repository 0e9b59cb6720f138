"""A client of a store whose connections are lost: requests come again, and are carried out once."""

from __future__ import annotations

import selectors
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta

import pytest

from weft._comm.deadline import Deadline
from weft._comm.stores import store_server
from weft._comm.stores.tcp_store import TCPStore
from weft._comm.transport.sockets import connect
from weft.errors import DistNetworkError, DistStoreError, JobKeyError, PeerGoneError, QueueEmptyError

_TIMEOUT = timedelta(seconds=20)


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("WEFT_JOB_KEY", "key of the tests")


class Relay:
    """Stands between a client and a server, at another address and the same port, and cuts connections when told to."""

    host = "127.0.0.2"

    def __init__(self, port):
        self.port = port
        self._listener = socket.create_server((self.host, port))
        self.answers_to_lose = 0
        self.lost = threading.Semaphore(0)
        self._pairs = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.port))
            self._pairs.append((near, far))
            self._threads.append(threading.Thread(target=self._pump, args=(near, far)))
            self._threads[-1].start()

    def _pump(self, near, far):
        proofs = 2  # of the server's pieces; what follows are answers
        with selectors.DefaultSelector() as selector, near, far, suppress(OSError):
            selector.register(near, selectors.EVENT_READ, far)
            selector.register(far, selectors.EVENT_READ, near)
            while True:
                for entry, _ in selector.select():
                    piece = entry.fileobj.recv(1 << 16)
                    answer = entry.fileobj is far and proofs <= 0
                    proofs -= entry.fileobj is far
                    if answer and self.answers_to_lose:
                        self.answers_to_lose -= 1
                        self.lost.release()
                        return
                    if not piece:
                        return
                    entry.data.sendall(piece)

    def cut(self):
        """Lose all connections."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def master():
    store = TCPStore("127.0.0.1", 0, is_master=True, timeout=_TIMEOUT)
    yield store
    store.close()


@pytest.fixture
def relay(master):
    relay = Relay(master.port)
    yield relay
    relay.close()


@pytest.fixture
def far(relay):
    store = TCPStore(relay.host, relay.port, timeout=_TIMEOUT)
    yield store
    store.close()


def test_changes_whose_answers_are_lost_happen_once(master, relay, far):
    for number in range(1, 21):
        relay.answers_to_lose = number % 3
        assert far.add("n", 1) == number
        relay.answers_to_lose = 1
        far.append("a", "x")
        relay.answers_to_lose = 1
        assert far.compare_set("c", str(number - 1) if number > 1 else "", str(number)) == b"%d" % number
        relay.answers_to_lose = 1
        assert far.delete_key("a") is True
        relay.answers_to_lose = 1
        far.queue_push("q", str(number))
    assert (master.get("n"), master.get("c"), master.check(["a"]), master.queue_len("q")) == (b"20", b"20", False, 20)
    for number in range(1, 21):
        relay.answers_to_lose = 1
        assert far.queue_pop("q", block=number % 2 == 0) == b"%d" % number
    with pytest.raises(QueueEmptyError, match=r"^queue is empty$"):
        far.queue_pop("q", block=False)


def test_a_set_that_comes_again_overwrites_nothing_that_came_between(master, relay, far):
    relay.answers_to_lose = 1
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(far.set, "k", "mine")
        assert relay.lost.acquire(timeout=20)
        master.set("k", "theirs")
        done.result(20)
    assert master.get("k") == b"theirs"


@pytest.mark.parametrize("operation", ["get", "wait", "queue_pop"])
def test_waits_outlive_their_connection(master, relay, far, operation):
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(getattr(far, operation), *((["k"],) if operation == "wait" else ("k",)))
        for _ in range(3):
            far.check(["k"])
            relay.cut()
        if operation == "queue_pop":
            master.queue_push("k", "v")
        else:
            master.set("k", "v")
        assert found.result(20) == (None if operation == "wait" else b"v")
    assert master.queue_len("k") == 0


def test_another_store_than_the_one_that_is_called_is_refused(master):
    """Else who squats a port could lead its clients to another job's store."""
    with socket.create_server(("127.0.0.1", 0)) as squatter, ThreadPoolExecutor(1) as threads:
        port = squatter.getsockname()[1]
        client = threads.submit(TCPStore, "127.0.0.1", port, timeout=_TIMEOUT)
        near, _ = squatter.accept()
        with near, socket.create_connection(("127.0.0.1", master.port)) as far:
            for source, target in ((far, near), (near, far), (far, near)):
                target.sendall(source.recv(1024))
        with pytest.raises(
            JobKeyError, match=rf"there is another store at 127\.0\.0\.1:{port}: .*'store {master.port}'"
        ):
            client.result(timeout=60)


def test_a_connection_that_is_lost_each_time_is_an_error(relay, far):
    relay.answers_to_lose = 100
    lost = (
        rf"^the connection to the store at 127\.0\.0\.2:{relay.port} was lost: the connection was closed by the other"
    )
    with pytest.raises(DistNetworkError, match=lost):
        far.add("n", 1)


def test_a_server_that_has_ended_is_told_at_once(master):
    other = TCPStore("127.0.0.1", master.port, timeout=timedelta(hours=1))
    master.close()
    with pytest.raises(PeerGoneError, match=r"^the connection to the store at .* was lost: .* has ended, or the net"):
        other.set("k", "v")
    with pytest.raises(PeerGoneError, match=r"^The client socket has failed to connect .*: Connection refused; is"):
        other.set("k", "v")
    other.close()


def test_a_host_without_an_address_is_not_a_server_that_has_ended():
    with pytest.raises(DistNetworkError, match=r"name 'no-such-host\.invalid'") as info:
        TCPStore("no-such-host.invalid", 1, timeout=timedelta(seconds=1))
    assert not isinstance(info.value, PeerGoneError)
    with pytest.raises(DistNetworkError, match=r"name 'no-such-host\.invalid'") as info:
        connect("no-such-host.invalid", 1, Deadline(60), retry=False)
    assert not isinstance(info.value, PeerGoneError)


def test_the_server_forgets_the_oldest_of_the_lost(master, monkeypatch):
    monkeypatch.setattr(store_server, "_MOST_LOST", 3)
    server = master.close.peek()[2][1].server
    for number in range(10):
        store = TCPStore("127.0.0.1", master.port, timeout=_TIMEOUT)
        assert store.add("n", 1) == number + 1
        store.close()
    master.check(["n"])  # the server has seen that the others have gone when it answers this one
    assert len(server._sessions) <= 5


# --- queues ---


def test_pops_are_served_in_the_order_in_which_they_came(master):
    others = [TCPStore("127.0.0.1", master.port, timeout=_TIMEOUT) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        found = [pool.submit(other.queue_pop, "q") for other in others]
        for value in "abc":
            master.queue_push("q", value)
        assert sorted(pop.result(20) for pop in found) == [b"a", b"b", b"c"]
    for other in others:
        other.close()


def test_a_pop_that_runs_out_takes_nothing(master):
    master.set_timeout(timedelta(milliseconds=50))
    with pytest.raises(DistStoreError, match=r"^wait timeout after 50ms, keys: /q; no process"):
        master.queue_pop("q")
    master.queue_push("q", "v")
    assert master.queue_len("q") == 1
