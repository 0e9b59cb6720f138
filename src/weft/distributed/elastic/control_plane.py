"""A server in each worker through which its state can be inspected."""

from __future__ import annotations

import faulthandler
import json
import os
import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager

from weft.distributed.elastic._http import Response, SocketServer
from weft.distributed.elastic.multiprocessing.errors._record import record_once
from weft.distributed.elastic.multiprocessing.errors.handlers import get_error_handler
from weft.errors import DistError

__all__ = ["worker_main"]

TORCH_WORKER_SERVER_SOCKET = "TORCH_WORKER_SERVER_SOCKET"

_PATH = "/handler/"
_WELCOME = f'<h1>weft.distributed worker</h1>\n<a href="{_PATH}">Handler names</a>\n'


@contextmanager
def worker_main() -> Generator[None]:
    """Run the block, or the function decorated by `@worker_main()`, as the main part of a worker.

    An exception is written to the process's error file, as by `record`. If TORCH_WORKER_SERVER_SOCKET names a Unix
    socket, an HTTP server answers there meanwhile: `GET /handler/` lists its handlers, and `POST /handler/NAME` calls
    one. `ping` answers pong; `dump_traceback` shows the stack of each thread. Workers of one host need different
    sockets.
    """
    handler = get_error_handler()
    handler.initialize()
    with ExitStack() as stack:
        socket_path = os.environ.get(TORCH_WORKER_SERVER_SOCKET)
        if socket_path is not None:
            stack.enter_context(closing(_served(socket_path)))
        try:
            yield
        except Exception as error:
            record_once(error, handler)
            raise


def _served(socket_path: str) -> SocketServer:
    try:
        return SocketServer(socket_path, _answer)
    except OSError as error:
        raise DistError(
            f"{TORCH_WORKER_SERVER_SOCKET}={socket_path} cannot be listened to: {error}; give each worker a path of "
            "its own, in a folder that exists"
        ) from error


def _answer(method: str, path: str) -> Response:
    name = path.removeprefix(_PATH)
    if method == "GET" and path == "/":
        return Response(_WELCOME, kind="text/html")
    if method == "GET" and path == _PATH:
        return Response(json.dumps(sorted(_HANDLERS)), kind="application/json")
    if method == "POST" and path.startswith(_PATH) and name in _HANDLERS:
        return Response(_HANDLERS[name]())
    return Response(
        f"Handler {name} not found: POST {_PATH}NAME calls one of {', '.join(_HANDLERS)}\n", "404 Not Found"
    )


def _traceback() -> str:
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read()


_HANDLERS: dict[str, Callable[[], str]] = {"dump_traceback": _traceback, "ping": lambda: "pong"}
