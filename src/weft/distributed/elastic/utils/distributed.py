"""A store for programs that start workers themselves."""

from __future__ import annotations

from datetime import timedelta

from weft._comm.stores.tcp_store import TCPStore
from weft.distributed.elastic.rendezvous.utils import free_port as get_free_port
from weft.distributed.elastic.utils.api import get_socket_with_port
from weft.errors import ValueRangeError

__all__ = ["create_c10d_store", "get_free_port", "get_socket_with_port"]


def create_c10d_store(
    is_server: bool,
    server_addr: str,
    server_port: int = -1,
    world_size: int = 1,
    timeout: float = 600,
    wait_for_workers: bool = True,
    retries: int = 3,
    use_libuv: bool | None = None,
) -> TCPStore:
    """A `TCPStore`. This process serves it if `is_server`, and then waits for the others if `wait_for_workers`.

    `timeout` is in seconds. With port -1 the server takes a free port, which is `port` of the store; so `retries` is
    not needed, nor is `use_libuv`. `ValueError` for port -1 if several processes would have to know it.
    """
    del retries, use_libuv
    if server_port == -1 and world_size > 1:
        raise ValueRangeError(
            f"server_port must be specified when world_size > 1, got server_port={server_port}, world_size={world_size}"
        )
    return TCPStore(
        server_addr,
        max(server_port, 0),
        world_size,
        is_server,
        timedelta(seconds=timeout),
        wait_for_workers,
    )
