"""A store that one process serves to the others over TCP."""

from __future__ import annotations

import socket
import threading
import weakref
from collections.abc import Sequence
from datetime import timedelta

from weft._comm.deadline import Deadline
from weft._comm.stores.store import (
    DEFAULT_TIMEOUT,
    QUEUE_EMPTY,
    PrefixStore,
    Store,
    as_amount,
    as_key,
    as_keys,
    as_value,
    paired,
    wait_error,
)
from weft._comm.stores.store_connection import ConnectionPool
from weft._comm.stores.store_server import StoreServer
from weft._comm.stores.table import key_text
from weft._comm.transport import sockets
from weft._comm.transport.key import job_key
from weft.errors import ArgumentError, DistNetworkError, DistStoreError, QueueEmptyError, ValueRangeError

_CANCEL_SECONDS = (1.0, 5.0)  # shortest and longest time for the server to name the keys that a wait has missed


class TCPStore(Store):
    """A store that the master's process serves to all others.

    Args:
        host_name: where the master is: a name, or an address of IPv4 or IPv6. On the loopback interface the port is
            open to this host only, otherwise to all.
        port: the master's port. A master with port 0 picks a free one, see `port`.
        world_size: how many processes use the store, the master among them; None where that is not known.
        is_master: whether to serve the store in this process, by a thread.
        timeout: how long to try to connect, to wait for the others, and to wait in `get` and `wait`.
        wait_for_workers: whether the master waits until `world_size` processes have come.
        multi_tenant: whether masters of the same port in one process share one server.
        master_listen_fd: a bound socket for the master to serve on, which it takes over.
        use_libuv: accepted as PyTorch's; there is one server.

    All processes must have the same job key (WEFT_JOB_KEY, or the key file of the user). `DistNetworkError` when the
    master cannot be reached in time, has another key, its port is taken, or the connection is lost; `DistStoreError`
    when workers or keys do not come in time.
    """

    _joins = True  # whether it counts as a process that uses the store

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta | float = DEFAULT_TIMEOUT,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None:
        del use_libuv
        if not sockets.is_port(port):
            raise ArgumentError(f"TCPStore: port must be an integer from 0 to 65535, got {port!r}")
        self.set_timeout(timeout)
        deadline = Deadline(self._timeout.total_seconds())
        key = job_key()
        self._host = host_name
        served, address = None, (host_name, port)
        if is_master:
            served = _served(host_name, port, key, shared=multi_tenant, fd=master_listen_fd)
            # The master reaches its own server by the loopback interface: its name may lead elsewhere, as behind a
            # service.
            address = served.address
        self._port = address[1]
        self._pool = ConnectionPool(address, key)
        self.close = weakref.finalize(self, _close, self._pool, served)
        try:
            if self._joins:
                self._change(b"join", deadline=deadline)
            if served is not None and wait_for_workers and world_size:
                self._await_workers(served.server, world_size, deadline)
        except BaseException:
            self.close()
            served = None  # the error keeps this frame, but the port is free at once
            raise

    def _await_workers(self, server: StoreServer, world_size: int, deadline: Deadline) -> None:
        joined = server.await_clients(world_size, deadline)
        if joined < world_size:
            address = sockets.address_text(self._host, self._port)
            raise DistStoreError(
                f"Timed out after {deadline.seconds:g} seconds waiting for clients. {joined}/{world_size} clients "
                f"joined the store at {address}; were the others started, and can they reach this address?"
            )

    @property
    def host(self) -> str:
        """The master's host, as given."""
        return self._host

    @property
    def port(self) -> int:
        """The master's port."""
        return self._port

    def __repr__(self) -> str:
        return f"TCPStore({sockets.address_text(self._host, self._port)})"

    def set(self, key: str, value: str | bytes) -> None:
        self._change(b"set", as_key(key), as_value(value))

    def get(self, key: str) -> bytes:
        return self._await(b"get", [as_key(key)], self._timeout)[0]

    def add(self, key: str, amount: int) -> int:
        return int(self._change(b"add", as_key(key), b"%d" % as_amount(amount))[0])

    def append(self, key: str, value: str | bytes) -> None:
        self._change(b"append", as_key(key), as_value(value))

    def check(self, keys: Sequence[str]) -> bool:
        return self._call(b"check", *as_keys(keys)) == [b"1"]

    def wait(self, keys: Sequence[str], timeout: timedelta | float | None = None) -> None:
        self._await(b"wait", as_keys(keys), self._timeout_or_default(timeout))

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        return self._change(b"compare_set", as_key(key), as_value(expected_value), as_value(desired_value))[0]

    def delete_key(self, key: str) -> bool:
        return self._change(b"delete", as_key(key)) == [b"1"]

    def num_keys(self) -> int:
        return int(self._call(b"count")[0])

    def list_keys(self) -> list[str]:
        return [key_text(key) for key in self._call(b"list")]

    def values_under(self, prefix: str) -> dict[str, bytes]:
        fields = self._call(b"under", as_key(prefix))
        return dict(zip(map(key_text, fields[::2]), fields[1::2], strict=True))

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return self._await(b"get", as_keys(keys), self._timeout)

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        paired(keys, values)
        pairs = zip(as_keys(keys), map(as_value, values), strict=True)
        self._change(b"set", *(field for pair in pairs for field in pair))

    def queue_push(self, key: str, value: str | bytes) -> None:
        self._change(b"push", as_key(key), as_value(value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        if block:
            return self._await(b"pop", [as_key(key)], self._timeout, once=True)[0]
        return self._change(b"pop now", as_key(key))[0]

    def queue_len(self, key: str) -> int:
        return int(self._call(b"length", as_key(key))[0])

    def clone(self) -> TCPStore:
        """Another client of the same server."""
        other = TCPStore(*self._pool.address, timeout=self._timeout)  # the master's own address may differ from `host`
        other._host = self._host
        return other

    def _call(
        self, operation: bytes, *fields: bytes, once: bool = False, deadline: Deadline | None = None
    ) -> list[bytes]:
        """The answer to a request that the server answers at once."""
        deadline = deadline or Deadline(self._timeout.total_seconds())
        with self._pool.link(deadline) as link:
            try:
                answer = link.ask([operation, *fields], deadline, once=once)
            except TimeoutError:
                raise DistNetworkError(
                    f"{operation.decode()}: the store at {self._pool.name} did not answer within {deadline.seconds:g} "
                    "s; is its process stopped, or the network cut?"
                ) from None
        return _checked_answer(answer)

    def _change(self, operation: bytes, *fields: bytes, deadline: Deadline | None = None) -> list[bytes]:
        """The answer to a request that must not be executed twice."""
        # A request whose answer was lost with its connection is repeated; the server recognises it by its number.
        return self._call(operation, *fields, once=True, deadline=deadline)

    def _await(self, operation: bytes, keys: list[bytes], timeout: timedelta, *, once: bool = False) -> list[bytes]:
        """The answer to a request that the server answers when the keys exist."""
        # A short wait, as a poll, is not yet a sign that the server is gone: it gets the store's whole time to answer.
        deadline, patience = Deadline(timeout.total_seconds()), max(timeout, self._timeout).total_seconds()
        with self._pool.link(Deadline(patience)) as link:
            try:
                try:
                    answer = link.ask([operation, *keys], deadline, once=once)
                except TimeoutError:
                    # The server tells which keys are missing; without that, the answer of a late key would be taken for
                    # that of the next request.
                    answer = link.cancel(Deadline(sorted([patience, *_CANCEL_SECONDS])[1]))
            except TimeoutError:
                raise DistNetworkError(
                    f"{wait_error(keys, timeout)}. The store at {self._pool.name} does not answer either; is its "
                    "process stopped, or the network cut?"
                ) from None
        if answer[:1] == [b"missing"]:
            raise wait_error(answer[1:], timeout)
        return _checked_answer(answer)


def host_of(store: object) -> str | None:
    """The host of the `TCPStore` that a store is, or is a part of; None for other stores."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store.host if isinstance(store, TCPStore) else None


def _checked_answer(answer: list[bytes]) -> list[bytes]:
    kind, *fields = answer
    match kind:
        case b"ok":
            return fields
        case b"value":
            raise ValueRangeError(fields[0].decode())
        case b"empty":
            raise QueueEmptyError(QUEUE_EMPTY)
        case _:
            raise DistStoreError(b" ".join(fields).decode())


# --- servers of this process ------------------------------------------------------------------------------------


class _Served:
    """A server and the address by which this process reaches it. It stops when no store has this object any more."""

    def __init__(self, server: StoreServer, address: tuple[str, int]) -> None:
        self.server = server
        self.address = address
        weakref.finalize(self, server.stop)


_shared: weakref.WeakValueDictionary[int, _Served] = weakref.WeakValueDictionary()  # by port
_shared_mutex = threading.Lock()  # not taken at the end of a store: garbage is collected anywhere, even under this lock


def _served(host: str, port: int, key: bytes, *, shared: bool, fd: int | None) -> _Served:
    """A new server, or that of a master of this process that shares its own."""
    with _shared_mutex:
        if shared and (present := _shared.get(port)) is not None:
            return present
        if fd is None:
            listener = sockets.listen(host, port)
        else:
            listener = socket.socket(fileno=fd)
            listener.listen(sockets.BACKLOG)
        address = _local_address(listener)
        served = _Served(StoreServer(listener, key), address)
        if shared:
            _shared[served.server.port] = served
        return served


def _local_address(listener: socket.socket) -> tuple[str, int]:
    """The address of a listening socket as seen from this host; needs no name service."""
    host, port = listener.getsockname()[:2]
    return "127.0.0.1" if host in {"0.0.0.0", "::"} else host, port


def _close(pool: ConnectionPool, served: _Served | None) -> None:
    """Close the connections. Its caller forgets `served` afterwards."""
    del served
    pool.close()
