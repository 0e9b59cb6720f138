"""Who comes to a service: strangers in numbers, slow ones, other users, and peers."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from queue import SimpleQueue

import pytest

from weft._comm.deadline import Deadline
from weft._comm.transport import sockets
from weft._comm.transport.acceptor import MAX_UNAUTHENTICATED, Acceptor
from weft._comm.transport.authentication import Service, authenticate
from weft._comm.transport.wire import Frames, receive
from weft.errors import DistNetworkError, JobKeyError

SERVICE = Service("test", "1")


@pytest.fixture
def door():
    """An acceptor's address, and those that it has let in."""
    guests = SimpleQueue()
    listener = sockets.listen("127.0.0.1", 0)
    acceptor = Acceptor([listener], SERVICE, b"key", guests.put)
    with ExitStack() as stack:
        stack.callback(acceptor.close)
        yield listener.getsockname(), lambda: stack.enter_context(guests.get(timeout=60).sock)


def come(address, words=""):
    """A peer that proves the key."""
    sock = socket.create_connection(address, timeout=60)
    authenticate(sock, b"key", SERVICE, Deadline(60), words)
    return sock


def test_peers_come_in_side_by_side(door):
    address, guest = door
    slow = socket.create_connection(address, timeout=60)
    receive(slow, Frames(1024), Deadline(60))
    with slow, come(address) as peer, guest() as let_in:
        assert let_in.getpeername() == peer.getsockname()


def test_more_strangers_than_may_prove_themselves_keep_nobody_out(door, caplog):
    address, guest = door
    with ExitStack() as stack:
        strangers = [stack.enter_context(socket.create_connection(address, timeout=60)) for _ in range(500)]
        for number in range(20):
            with come(address, str(number)):
                guest()
        gone = sum(has_ended(stranger) for stranger in strangers[: 500 - MAX_UNAUTHENTICATED])
    assert gone == 500 - MAX_UNAUTHENTICATED
    assert len(caplog.records) < 30
    assert "it took long to prove the job's key, and others want to come in" in caplog.text


def has_ended(sock):
    """Wait for the end of a connection, whatever is said before it."""
    while sock.recv(1024):
        pass
    return True


def test_a_process_without_room_for_more_files_lets_others_in_when_there_is(door, caplog):
    address, guest = door
    with come(address), guest():
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        waiting = socket.socket()
        resource.setrlimit(resource.RLIMIT_NOFILE, (waiting.fileno() + 1, limit[1]))
        try:
            waiting.settimeout(60)
            waiting.connect(address)  # the system takes it, the process cannot
            while "a connection was not taken: [Errno 24]" not in caplog.text:
                assert any(thread.name == "weft acceptor, test" for thread in threading.enumerate())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        with waiting:
            authenticate(waiting, b"key", SERVICE, Deadline(60))
            guest()


def test_one_that_says_the_wrong_thing_is_sent_away_and_named(door, caplog):
    address, _ = door
    with socket.create_connection(address, timeout=60) as other:
        with pytest.raises(JobKeyError):
            authenticate(other, b"another", SERVICE, Deadline(60))
        assert other.recv(1) == b""
        assert f"127.0.0.1:{other.getsockname()[1]} was sent away: it has another job key" in caplog.text
    with socket.create_connection(address, timeout=60) as old:
        old.sendall(bytes([64, 0, 0, 0]) + bytes(64))
        assert has_ended(old)


def test_after_its_end_nobody_is_heard(door):
    address, guest = door
    listener = sockets.listen("127.0.0.1", 0)
    acceptor = Acceptor([listener], SERVICE, b"key", lambda _: None)
    port = listener.getsockname()
    with socket.create_connection(port, timeout=60) as stranger:
        receive(stranger, Frames(1024), Deadline(60))
        acceptor.close()
        with pytest.raises(DistNetworkError):
            receive(stranger, Frames(1024), Deadline(60))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(port)
    with come(address), guest():
        pass


COMES = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
sock = socket.socket(socket.AF_UNIX)
sock.connect(chr(0) + sys.argv[1])
print(len(sock.recv(1024)))
"""


def test_another_user_of_the_host_hears_nothing_over_a_unix_socket(caplog):
    if os.geteuid():
        pytest.skip("only root can be another user")
    name = f"weft-test-{os.getpid()}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0{name}")
    listener.listen()
    acceptor = Acceptor([listener], SERVICE, b"key", lambda _: None)
    try:
        heard = [
            subprocess.run([sys.executable, "-c", COMES, name, str(user)], capture_output=True, text=True, check=True)
            for user in (65534, os.geteuid())
        ]
    finally:
        acceptor.close()
    assert [int(done.stdout) for done in heard] == [0, 52]
    assert "was sent away: it is another user's" in caplog.text
