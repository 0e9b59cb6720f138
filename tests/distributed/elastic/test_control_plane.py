"""The server in a worker, asked over its Unix socket while the worker runs."""

import http.client
import json
import socket

import pytest

from weft.distributed.elastic.control_plane import worker_main


class _Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("worker", timeout=20)
        self._path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(path, method, target):
    connection = _Connection(path)
    try:
        connection.request(method, target)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_WORKER_SERVER_SOCKET", str(tmp_path / "socket"))
    return tmp_path / "socket"


def test_a_worker_answers_while_it_runs(path):
    @worker_main()
    def work():
        assert ask(path, "POST", "/handler/ping") == (200, "pong")
        status, names = ask(path, "GET", "/handler/")
        assert (status, json.loads(names)) == (200, ["dump_traceback", "ping"])
        status, where = ask(path, "POST", "/handler/dump_traceback?a=1")
        assert status == 200
        assert f'File "{__file__}"' in where
        assert " in work\n" in where
        status, told = ask(path, "POST", "/handler/none")
        assert (status, told) == (404, "Handler none not found: POST /handler/NAME calls one of dump_traceback, ping\n")
        assert ask(path, "GET", "/handler/ping")[0] == 404
        assert ask(path, "GET", "/")[0] == 200
        return 3

    assert [work(), work()] == [3, 3]
    assert not path.exists()


def test_a_socket_that_a_killed_worker_left_is_taken_over(path):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
        left.listen()
        with pytest.raises(RuntimeError, match=r"socket cannot be listened to: .*give each worker a path of its own"):
            worker_main().__enter__()
    with worker_main():
        assert ask(path, "POST", "/handler/ping") == (200, "pong")


def test_a_file_is_not_taken_for_a_socket(path):
    path.write_text("precious")
    with pytest.raises(RuntimeError, match=r"cannot be listened to: .*Address already in use"):
        worker_main().__enter__()
    assert path.read_text() == "precious"


def test_without_a_socket_errors_are_recorded_all_the_same(tmp_path, monkeypatch):
    monkeypatch.delenv("TORCH_WORKER_SERVER_SOCKET", raising=False)
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    with pytest.raises(ZeroDivisionError), worker_main():
        _ = 1 / 0
    told = json.loads((tmp_path / "error.json").read_text())
    assert told["message"]["message"] == "ZeroDivisionError: division by zero"
