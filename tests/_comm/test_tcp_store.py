"""The store over TCP: many processes, killed and malicious peers, and addresses."""

from __future__ import annotations

import gc
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

import pytest

from weft._comm.deadline import Deadline
from weft._comm.stores.store_server import StoreServer
from weft._comm.stores.tcp_store import TCPStore
from weft._comm.transport import sockets
from weft._comm.transport.authentication import authenticate, store_service
from weft._comm.transport.key import job_key
from weft._comm.transport.wire import Frames, frame, pack, receive, send, unpack
from weft.errors import DistNetworkError, DistStoreError, JobKeyError

_TIMEOUT = timedelta(seconds=20)
_SHORT = timedelta(milliseconds=200)
_HEAD = "import sys; from datetime import timedelta; from weft._comm.stores.tcp_store import TCPStore\n"


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("WEFT_JOB_KEY", "key of the tests")


@pytest.fixture
def master():
    with closing(TCPStore("127.0.0.1", 0, is_master=True, timeout=_TIMEOUT)) as store:
        yield store


@contextmanager
def closing(store):
    try:
        yield store
    finally:
        store.close()


def client(port, **options):
    return closing(TCPStore("127.0.0.1", port, timeout=_TIMEOUT, **options))


@contextmanager
def spawned(script, *args):
    peer = subprocess.Popen(
        [sys.executable, "-c", _HEAD + script, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield peer
    finally:
        peer.kill()
        peer.communicate()


_CLIENT = "s = TCPStore('127.0.0.1', int(sys.argv[1]), timeout=timedelta(seconds=20))\n"
_MASTER = "s = TCPStore('127.0.0.1', 0, is_master=True)\nprint(s.port, flush=True)\nsys.stdin.read()"


def test_importing_a_store_loads_no_jax():
    code = "import sys; from weft._comm.stores import file_store, tcp_store; print({'jax', 'numpy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_many_processes_and_their_counts():
    script = (
        "s = TCPStore('127.0.0.1', int(sys.argv[1]), 5, timeout=timedelta(seconds=20))\n"
        "for _ in range(200): s.add('n', 1)\ns.get('go'); s.add('gone', 1)"
    )
    listener = sockets.listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    with ThreadPoolExecutor(4) as threads:
        peers = [
            threads.submit(subprocess.run, [sys.executable, "-c", _HEAD + script, str(port)], check=True, timeout=30)
            for _ in range(4)
        ]
        with closing(
            TCPStore("127.0.0.1", port, 5, is_master=True, timeout=_TIMEOUT, master_listen_fd=listener.detach())
        ) as store:
            store.set("go", "")
            for peer in peers:
                peer.result()
            assert store.get("n") == b"800"
            assert store.get("gone") == b"4"


def test_the_master_says_how_many_workers_came():
    with pytest.raises(DistStoreError, match=r"^Timed out after 0\.2 seconds waiting for clients\. 1/3 clients joined"):
        TCPStore("127.0.0.1", 0, 3, is_master=True, timeout=_SHORT)
    with closing(TCPStore("127.0.0.1", 0, 3, is_master=True, wait_for_workers=False)) as store:
        assert store.num_keys() == 1


def test_a_killed_client_disturbs_nobody(master):
    script = _CLIENT + "s.set('up', '1')\ns.get('never')"
    with spawned(script, master.port) as peer:
        master.wait(["up"])
        peer.kill()
        peer.wait()
    master.set("never", "1")
    assert master.get("never") == b"1"


def test_a_killed_server_ends_all_waits_at_once():
    with spawned(_MASTER) as peer, ThreadPoolExecutor(3) as threads:
        port = int(peer.stdout.readline())
        with client(port) as store:
            waits = [threads.submit(store.get, f"never {number}") for number in range(3)]
            store.set("k", "v")
            peer.kill()
            lost = rf"^the connection to the store at 127\.0\.0\.1:{port} was lost: the connection was closed"
            gone = f"{lost}|^The client socket has failed to connect"  # where a wait had the connection that was free
            for wait in waits:
                with pytest.raises(DistNetworkError, match=f"{gone}|closes every"):
                    raise wait.exception(timeout=10) or AssertionError("the wait ended without an error")
            with pytest.raises(DistNetworkError, match=gone):
                store.set("k", "v")


def test_a_stopped_server_is_an_error_in_time():
    with spawned(_MASTER) as peer:
        port = int(peer.stdout.readline())
        with client(port) as store:
            peer.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, peer.pid, os.WSTOPPED | os.WNOWAIT)
            store.set_timeout(_SHORT)
            silent = r"^set: the store at 127\.0\.0\.1:\d+ did not answer within 0\.2 s; is its process stopped, or the"
            with pytest.raises(DistNetworkError, match=silent):
                store.set("k", "v")
            with pytest.raises(DistNetworkError, match=r"took the connection and said nothing for 0\.2 s"):
                store.set("k", "v")


def test_a_wrong_key_is_an_error_at_once_and_the_server_goes_on(master, monkeypatch, caplog):
    monkeypatch.setenv("WEFT_JOB_KEY", "the key of another job")
    refused = rf"^the store at 127\.0\.0\.1:{master.port} refuses this process: .* the same WEFT_JOB_KEY"
    with pytest.raises(JobKeyError, match=refused):
        TCPStore("127.0.0.1", master.port, timeout=timedelta(hours=1))
    master.set("k", "v")
    assert "was sent away: it has another job key" in caplog.text


def test_a_store_waits_for_a_server_that_starts_later():
    with sockets.listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(TCPStore, "localhost", port, timeout=_TIMEOUT)
        with closing(TCPStore("localhost", port, 2, is_master=True, timeout=_TIMEOUT)) as store:
            with closing(late.result(timeout=20)) as other:
                other.set("k", "v")
            assert store.get("k") == b"v"


# --- what strangers send ---


def test_garbage_costs_its_sender_only(master):
    draw = random.Random(0)
    for _ in range(1000):
        with socket.create_connection(("127.0.0.1", master.port)) as stranger:
            stranger.sendall(draw.randbytes(draw.randrange(1, 80)))
    assert master.num_keys() == 1


def test_garbage_after_the_proof_costs_its_sender_only(master):
    draw = random.Random(0)
    for _ in range(500):
        with proved(master.port) as (peer, session):
            tagged = draw.choice([None, session.outgoing])
            wrong = [draw.randbytes(50), frame(draw.randbytes(50), tagged), frame(pack(b"add", b"n"), tagged)]
            peer.sendall(draw.choice(wrong))
            peer.sendall(frame(pack(b"add", b"n", b"many"), tagged) + frame(pack(draw.randbytes(3), b"x"), tagged))
    assert master.list_keys() == []


def test_frames_of_another_are_not_taken(master, caplog):
    """Who holds a connection can hand on what its ends say; not say something, say it again, or leave something out."""
    for wrong in ("untagged", "changed", "again", "left out"):
        with proved(master.port) as (peer, session):
            first, second = (frame(pack(b"add", b"n", b"1"), session.outgoing) for _ in range(2))
            changed = first.replace(b"1", b"9")
            peer.sendall({"untagged": first[:-16], "changed": changed, "again": first * 2, "left out": second}[wrong])
            peer.shutdown(socket.SHUT_WR)
            answers = Frames(100, session.incoming)
            if wrong == "again":
                assert unpack(receive(peer, answers, Deadline(20)))[0] == b"ok"
            with pytest.raises(DistNetworkError, match=r"^the connection was closed by the other side$"):
                receive(peer, answers, Deadline(20))
    assert master.get("n") == b"1"
    assert caplog.text.count("a frame is not what the peer has sent") == 3


def test_thousands_of_frames_in_one_connection(master):
    with proved(master.port) as (peer, session):
        peer.sendall(b"".join(frame(pack(b"add", b"n", b"1"), session.outgoing) for _ in range(3000)))
        frames = Frames(100, session.incoming)
        answers = [unpack(receive(peer, frames, Deadline(20))) for _ in range(3000)]
        assert answers[-1] == [b"ok", b"3000"]


@contextmanager
def proved(port):
    with sockets.connect("127.0.0.1", port, Deadline(20)) as peer:
        yield peer, authenticate(peer, job_key(), store_service(port), Deadline(20))


@pytest.mark.parametrize("size", [1025, 1 << 31])
def test_a_long_frame_before_the_proof_closes_the_connection(master, size):
    with socket.create_connection(("127.0.0.1", master.port), timeout=20) as stranger:
        receive(stranger, Frames(256), Deadline(20))
        stranger.sendall(struct.pack("<I", size))
        with pytest.raises(DistNetworkError, match=r"^the connection was closed by the other side$"):
            receive(stranger, Frames(256), Deadline(20))


def test_one_who_says_nothing_is_sent_away(caplog):
    server = StoreServer(sockets.listen("127.0.0.1", 0), job_key(), proof_seconds=0.1)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as stranger, client(server.port) as store:
        receive(stranger, Frames(256), Deadline(20))
        store.set("k", "v")
        assert stranger.recv(1) == b""
        assert store.get("k") == b"v"
    assert "it did not prove the job's key within 0.1 s" in caplog.text
    server.stop()


def test_one_who_does_not_read_blocks_nobody(master):
    master.set("large", b"x" * 20_000_000)
    with proved(master.port) as (peer, session):
        for _ in range(3):
            send(peer, pack(b"get", b"large"), Deadline(20), session.outgoing)
        master.set("k", "v")
        assert master.get("k") == b"v"
        frames = Frames(1 << 28, session.incoming)
        assert [len(receive(peer, frames, Deadline(20))) for _ in range(3)] == [20_000_010] * 3


# --- addresses ---


def test_ipv6():
    with closing(TCPStore("::1", 0, is_master=True, timeout=_TIMEOUT)) as store:
        assert (store.host, repr(store)) == ("::1", f"TCPStore([::1]:{store.port})")
        with closing(TCPStore("::1", store.port, timeout=_TIMEOUT)) as other:
            other.set("k", "v")
        assert store.get("k") == b"v"


def test_a_name_that_is_not_this_hosts_listens_everywhere():
    with closing(TCPStore("some.service.invalid", 0, is_master=True, timeout=_TIMEOUT)) as store:
        for host in ("127.0.0.1", "::1"):
            with closing(TCPStore(host, store.port, timeout=_TIMEOUT)) as other:
                other.add("n", 1)
        assert store.get("n") == b"2"


def test_a_port_in_use(master):
    taken = (
        rf"^The server socket has failed to listen on any local network address\. port: {master.port}, "
        r"host: '127\.0\.0\.1': [Aa]ddress already in use.*; choose another port"
    )
    with pytest.raises(DistNetworkError, match=taken):
        TCPStore("127.0.0.1", master.port, is_master=True, timeout=_TIMEOUT)


@pytest.mark.parametrize("port", [70000, -1, "29500", 1.5])
def test_what_is_no_port(port):
    for is_master in (True, False):
        with pytest.raises(TypeError, match=rf"^TCPStore: port must be an integer from 0 to 65535, got {port!r}$"):
            TCPStore("127.0.0.1", port, is_master=is_master)


def test_masters_of_one_process_share_a_server():
    first = TCPStore("127.0.0.1", 0, is_master=True, multi_tenant=True)
    second = TCPStore("127.0.0.1", first.port, is_master=True, multi_tenant=True)
    first.set("k", "v")
    first.close()
    assert second.get("k") == b"v"
    second.close()
    with pytest.raises(DistNetworkError, match=r"has been closed in this process$"):
        second.get("k")


def test_nobody_at_the_address():
    with sockets.listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
    refused = (
        rf"^The client socket has timed out after 200ms while trying to connect to \(127\.0\.0\.1, {port}\)\. Tried "
        rf"127\.0\.0\.1:{port}: Connection refused; is the address right"
    )
    with pytest.raises(DistNetworkError, match=refused):
        TCPStore("127.0.0.1", port, timeout=_SHORT)


@pytest.mark.parametrize(
    ("host", "port", "message"),
    [
        ("127.0.0.1", 0, r"^port must lie between 1 and 65535, got 0$"),
        ("", 1234, r"^the host to connect to is empty; give its name or address$"),
    ],
)
def test_impossible_addresses(host, port, message):
    with pytest.raises(DistNetworkError, match=message):
        TCPStore(host, port, timeout=_SHORT)


def test_a_name_that_nobody_knows(monkeypatch):
    monkeypatch.setenv("RES_OPTIONS", "timeout:1 attempts:1")  # where no name service answers, its thread ends soon
    unknown = r"trying to connect to \(no\.such\.host\.invalid, 1234\)\. Tried name 'no\.such\.host\.invalid': .+; is"
    with pytest.raises(DistNetworkError, match=unknown):
        TCPStore("no.such.host.invalid", 1234, timeout=_SHORT)


# --- lifetime ---


def test_a_store_that_nobody_holds_ends_its_server():
    store = TCPStore("127.0.0.1", 0, is_master=True)
    name = f"weft store {store.port}"
    assert name in {thread.name for thread in threading.enumerate()}
    del store
    gc.collect()
    assert name not in {thread.name for thread in threading.enumerate()}


def test_a_clone_is_another_client(master):
    with closing(master.clone()) as other:
        other.set("k", "v")
    assert master.get("k") == b"v"


def test_a_value_over_the_limit_is_refused_here(master, monkeypatch):
    monkeypatch.setattr("weft._comm.stores.store_connection.MOST_BYTES", 100)
    with pytest.raises(DistStoreError, match=r"^a request of \d+ bytes is longer than the 100 that the store takes$"):
        master.set("k", b"x" * 100)
    assert not master.check(["k"])


def test_the_client_of_pytorchs_own_store_is_told_once(master, caplog):
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", master.port), timeout=20) as stranger:
            receive(stranger, Frames(256), Deadline(20))
            stranger.sendall(bytes.fromhex("00 ce f7 85 3c"))
            assert stranger.recv(1) == b""
    (told,) = caplog.messages
    assert told.endswith(
        "was sent away: it does not speak Weft's protocol (its first bytes are 00 ce f7 85 3c), but that of PyTorch's "
        "own torch.distributed; change that import to weft.distributed, or set WEFT_AS_TORCH=1"
    )


def test_a_store_that_is_garbage_may_end_while_another_is_made(monkeypatch):
    first = TCPStore("127.0.0.1", 0, is_master=True)
    listen, ends = sockets.listen, [first.close]
    monkeypatch.setattr(sockets, "listen", lambda *args: ends.pop()() or listen(*args))  # as a collection would do it
    del first
    TCPStore("127.0.0.1", 0, is_master=True).close()
    assert not ends
