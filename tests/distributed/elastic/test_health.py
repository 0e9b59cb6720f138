"""The health endpoint over real sockets."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack

import pytest

from weft.distributed.elastic import _http
from weft.distributed.elastic._http import MOST_CONNECTIONS
from weft.distributed.elastic.agent.server.health_check_server import create_healthcheck_server


def ask(port, request=b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", host="127.0.0.1"):
    """Status line and body of an answer."""
    with socket.create_connection((host, port), timeout=20) as sock:
        sock.sendall(request)
        answer = b"".join(iter(lambda: sock.recv(4096), b"")).decode()
    head, _, body = answer.partition("\r\n\r\n")
    return head.partition("\r\n")[0], body


@pytest.fixture
def server():
    """A server whose callback gives `progress[0]`, or raises it."""
    progress = [time.time()]

    def alive():
        if isinstance(progress[0], Exception):
            raise progress[0]
        return progress[0]

    server = create_healthcheck_server(alive, port=0, timeout=60)
    assert server.alive_callback is alive
    server.start()
    server.start()
    yield server, progress
    server.stop()
    server.stop()


def test_the_answer_follows_the_agent(server):
    server, progress = server
    assert ask(server.port) == ("HTTP/1.0 200 OK", "alive\n")
    progress[0] = time.time() - 1000
    assert ask(server.port) == ("HTTP/1.0 503 Service Unavailable", "no progress for 1000 s, allowed are 60 s\n")
    progress[0] = ValueError("broken")
    assert ask(server.port) == ("HTTP/1.0 503 Service Unavailable", "the callback failed: ValueError('broken')\n")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this host has no IPv6")
def test_both_families_are_answered(server):
    assert ask(server[0].port, host="::1")[0] == "HTTP/1.0 200 OK"


def test_other_requests(server):
    server, _ = server
    assert ask(server.port, b"HEAD / HTTP/1.0\r\n\r\n") == ("HTTP/1.0 200 OK", "")
    assert ask(server.port, b"POST / HTTP/1.0\r\n\r\n") == ("HTTP/1.0 405 Method Not Allowed", "only GET\n")
    assert ask(server.port, b"GET / HTTP/1.0\r\n" + b"x: y\r\n" * 200) == ("", "")
    with socket.create_connection(("127.0.0.1", server.port)):  # says nothing, and keeps nobody else from asking
        assert ask(server.port)[0] == "HTTP/1.0 200 OK"


def test_a_port_in_use_does_not_end_the_job(server, caplog):
    server, _ = server
    second = create_healthcheck_server(time.time, server.port, 60)
    second.start()
    second.stop()
    assert f"no health check server on port {server.port}: [Errno 98]" in caplog.text


def test_slow_clients_keep_nobody_from_asking(server):
    """However many there are: they use few threads, and are closed to make room, or after five seconds."""
    server, _ = server
    before = threading.active_count()
    with ExitStack() as slow:
        for number in range(500):
            client = slow.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20))
            client.sendall(b"GET / HTTP/1.0\r\n"[: number % 16])
            if number % 100 == 99:
                assert ask(server.port) == ("HTTP/1.0 200 OK", "alive\n")
                assert threading.active_count() <= before + 2 * MOST_CONNECTIONS  # some are ending
    assert ask(server.port) == ("HTTP/1.0 200 OK", "alive\n")


def test_a_client_that_goes_on_sending_is_closed(server, monkeypatch):
    monkeypatch.setattr(_http, "SECONDS", 0.5)
    server, _ = server
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.settimeout(0.1)
        for _ in range(100):
            try:
                client.sendall(b"x")
                if client.recv(1) == b"":
                    break
            except TimeoutError:
                pass
            except ConnectionError:
                break
        else:
            pytest.fail("it is still connected")
