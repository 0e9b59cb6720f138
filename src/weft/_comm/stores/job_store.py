"""The store of a job, at the address that its processes are given."""

from __future__ import annotations

import os
from datetime import timedelta

from weft._comm.stores import keys
from weft._comm.stores.store import PrefixStore, Store
from weft._comm.stores.tcp_store import TCPStore
from weft._comm.transport import sockets
from weft.errors import ValueRangeError


def store_at(
    host: str, port: int, rank: int, world_size: int, timeout: timedelta, wait_for_workers: bool = True
) -> Store:
    """The store of an address, one for all its users in this process; the launcher's, if that serves the address."""
    if not sockets.is_port(port):
        raise ValueRangeError(f"port must have value from 0 to 65535 but was {port}.")
    hosted = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and str(port) == os.environ.get("MASTER_PORT")
    store = TCPStore(
        host,
        port,
        world_size,
        is_master=rank == 0 and not hosted,
        timeout=timeout,
        wait_for_workers=wait_for_workers,
        multi_tenant=True,
    )
    if not hosted:
        return store
    # One server is used by several starts of the workers, which must not see the keys of earlier ones.
    return PrefixStore(keys.in_round(), store)
