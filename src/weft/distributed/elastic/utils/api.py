"""Environment variables, a reserved port, and macros in arguments."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable

from weft._base.types import Arg
from weft.errors import ValueRangeError


def get_env_variable_or_raise(env_name: str) -> str:
    """The value of an environment variable; `ValueError` if it is not set."""
    if env_name not in os.environ:
        raise ValueRangeError(f"Environment variable {env_name} expected, but not set")
    return os.environ[env_name]


def get_socket_with_port() -> socket.socket:
    """A socket that listens on a free port of the loopback interface, and so reserves it until it is closed."""
    return socket.create_server(("localhost", 0), backlog=0)


class macros:
    """Macros in the arguments of workers, which a launcher replaces."""

    local_rank = "${local_rank}"

    @staticmethod
    def substitute(args: Iterable[Arg], local_rank: str) -> list[Arg]:
        """The arguments, with the macro in strings replaced by the local rank; other dollar signs are kept."""
        return [arg.replace(macros.local_rank, local_rank) if isinstance(arg, str) else arg for arg in args]
