"""Clients of a store that are not processes of the job, and do not count as such."""

from __future__ import annotations

import os
from datetime import timedelta
from urllib.parse import urlsplit

from weft._comm.stores.file_store import FileStore
from weft._comm.stores.store import Store
from weft._comm.stores.tcp_store import TCPStore
from weft.errors import DistStoreError, ValueRangeError


class _ObservedTCPStore(TCPStore):
    _joins = False


class _ObservedFileStore(FileStore):
    _joins = False


def observed(url: str, timeout: timedelta) -> Store:
    """The store at `tcp://HOST:PORT`, `file:///PATH`, or where `env://` says.

    `ValueError` for another address; `DistStoreError` where there is no such file. A store that is not served is an
    error on first use.
    """
    parts = urlsplit(url)
    if parts.scheme == "env":
        host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
        if not host or not port:
            raise ValueRangeError(f"{url}: MASTER_ADDR and MASTER_PORT are not both set; give tcp://HOST:PORT instead")
        parts = urlsplit(f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}")
    if parts.scheme == "file" and parts.path:
        if not (os.path.isfile(parts.path) and os.path.getsize(parts.path)):
            raise DistStoreError(f"there is no store in {parts.path!r}; has the job started, and has it not ended?")
        store: Store = _ObservedFileStore(parts.path)
        store.set_timeout(timeout)
        return store
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if parts.scheme != "tcp" or not host or port is None:
        raise ValueRangeError(f"{url!r} is no address of a store; give tcp://HOST:PORT, file:///PATH or env://")
    return _ObservedTCPStore(host, port, timeout=timeout)
