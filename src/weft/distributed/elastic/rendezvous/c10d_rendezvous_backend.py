"""A rendezvous backend in a store: a `TCPStore` that one of the nodes serves, or a `FileStore`."""

from __future__ import annotations

import binascii
import logging
import os
import tempfile
from base64 import b64decode, b64encode
from datetime import timedelta

from weft._base.types import Arg
from weft._comm.stores import keys
from weft._comm.stores.file_store import FileStore
from weft._comm.stores.store import Store
from weft._comm.stores.tcp_store import TCPStore
from weft.distributed.elastic.rendezvous._backend import STORE_FAILED, RendezvousBackend, Token, store_failures
from weft.distributed.elastic.rendezvous._connect import CONNECT_SECONDS, connect_to_store
from weft.distributed.elastic.rendezvous.api import RendezvousParameters
from weft.distributed.elastic.rendezvous.utils import fact, matches_machine_hostname, parse_rendezvous_endpoint
from weft.errors import (
    DistError,
    DistNetworkError,
    RendezvousConnectionError,
    RendezvousStateError,
    ValueRangeError,
)

_log = logging.getLogger(__name__)

DEFAULT_PORT = 29400  # torchrun's
OPTIONS = frozenset({"store_type", "is_host", "connect_timeout", "heartbeat_timeout", "read_timeout"})
"""The options that `create_backend` reads."""

_NOTHING = b"-"
"""The value in the store before the first state, since compare-and-set needs an expected value."""

_CHOOSE_ANOTHER = "choose another port in --rdzv-endpoint"
_NOT_ITSELF = (
    "this node serves it and cannot reach itself under that name, which its workers will use; name it otherwise"
)
_HEARTBEAT_SECONDS = 5.0


class C10dRendezvousBackend(RendezvousBackend):
    """Holds the state under one key of a store."""

    def __init__(self, store: Store, run_id: str) -> None:
        if not run_id:
            raise ValueRangeError("The run id must be a non-empty string.")
        self._store = store
        self._key = keys.rendezvous(run_id)
        self._call("compare_set", self._key, "", _NOTHING)

    @property
    def name(self) -> str:
        return "c10d"

    @property
    def store(self) -> Store:
        return self._store

    def get_state(self) -> tuple[bytes, Token] | None:
        return self._decoded(self._call("get", self._key))

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        if token is not None and not isinstance(token, bytes):  # not a token of this backend
            present_state = self.get_state()
            return None if present_state is None else (*present_state, False)
        written = b64encode(state)
        present = self._call("compare_set", self._key, token or _NOTHING, written)
        present_state = self._decoded(present)
        return None if present_state is None else (*present_state, present == written)

    def _call(self, name: str, *args: Arg) -> bytes:
        with store_failures():
            return getattr(self._store, name)(*args)

    def _decoded(self, written: bytes) -> tuple[bytes, Token] | None:
        if written == _NOTHING:
            return None
        try:
            return b64decode(written, validate=True), written
        except binascii.Error as error:
            raise RendezvousStateError(
                f"The rendezvous state is corrupt: {written[:80]!r} is no base64; start the job under another --rdzv-id"
            ) from error


def create_backend(params: RendezvousParameters) -> tuple[C10dRendezvousBackend, Store]:
    """The backend of an endpoint `HOST[:PORT]` (`store_type=tcp`) or a path (`store_type=file`), and its store.

    Options: `store_type`; `is_host`, whether this node serves the store (by default, if the endpoint is its address);
    `read_timeout` (60 s) for a response; `connect_timeout`, how long to wait for the node that serves the store
    (`read_timeout` if given, else 30 s); `heartbeat_timeout` (5 s, or `read_timeout` if less) for a response about the
    state. `RendezvousConnectionError` if the store cannot be reached.
    """
    patience = timedelta(seconds=params.read_seconds())
    kind = str(params.get("store_type", "tcp")).strip().lower()
    if kind not in ("file", "tcp"):
        raise ValueRangeError(
            f"Invalid store type {params.get('store_type')!r}. Currently only file and tcp are supported."
        )
    try:
        store = _file_store(params.endpoint.strip()) if kind == "file" else _tcp_store(params, patience)
    except RendezvousConnectionError as error:
        raise RendezvousConnectionError(f"{STORE_FAILED} {error}") from error.__cause__
    store.set_timeout(patience)
    # A client of its own, which gives up sooner: those who use the store itself may wait long for a key.
    state = store.clone()
    hasty = min(_HEARTBEAT_SECONDS, patience.total_seconds())
    state.set_timeout(timedelta(seconds=params.get_as_float("heartbeat_timeout", hasty)))
    return C10dRendezvousBackend(state, params.run_id), store


def _file_store(path: str) -> FileStore:
    try:
        if not path:
            handle, path = tempfile.mkstemp(prefix="weft_rendezvous_")
            os.close(handle)
        return FileStore(path)
    except (DistError, OSError) as error:
        raise RendezvousConnectionError(f"the file store {path!r} of the rendezvous cannot be used: {error}") from error


def _tcp_store(params: RendezvousParameters, patience: timedelta) -> TCPStore:
    host, port = parse_rendezvous_endpoint(params.endpoint, DEFAULT_PORT)
    is_host = params.get_as_bool("is_host")
    default = patience.total_seconds() if "read_timeout" in params.config else CONNECT_SECONDS
    seconds = params.get_as_float("connect_timeout", default)
    if is_host or (is_host is None and matches_machine_hostname(host)):
        try:
            return _reachable(TCPStore(host, port, is_master=True, wait_for_workers=False), seconds)
        except DistNetworkError as error:
            if is_host:
                raise RendezvousConnectionError(
                    f"this node cannot serve the rendezvous at {host}:{port}: {fact(error)}; {_CHOOSE_ANOTHER}"
                ) from error
            # Several nodes of one machine (as in tests, or in containers that share the network) all believe to be the
            # host; the first one is.
            _log.info("another process of this machine has %s:%d, joining it: %s", host, port, error)
            return connect_to_store(
                host, port, patience, seconds, f"another program of this machine has the port; {_CHOOSE_ANOTHER}"
            )
    return connect_to_store(host, port, patience, seconds)


def _reachable(store: TCPStore, seconds: float) -> TCPStore:
    """The store of this process, after a check that its own host name leads to it."""
    try:
        connect_to_store(store.host, store.port, store.timeout, seconds, _NOT_ITSELF).close()
    except RendezvousConnectionError:
        store.close()
        raise
    return store
