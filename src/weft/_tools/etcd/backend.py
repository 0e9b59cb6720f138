"""A rendezvous backend in etcd, which survives the loss of a minority of etcd's members."""

from __future__ import annotations

from dataclasses import replace

from weft._comm.stores.store import Store
from weft._tools.etcd.client import EtcdClient, EtcdOptions
from weft._tools.etcd.store import EtcdStore
from weft.distributed.elastic.rendezvous._backend import RendezvousBackend, Token
from weft.distributed.elastic.rendezvous.api import RendezvousParameters
from weft.errors import ValueRangeError

_PREFIX = "/weft/elastic/rendezvous"
OPTIONS = frozenset(
    {
        "protocol",
        "cacert",
        "cert",
        "key",
        "ca_cert",
        "ssl_cert",
        "ssl_cert_key",
        "etcd_prefix",
        "connect_timeout",
        "heartbeat_timeout",
        "read_timeout",
    }
)
"""The options that `create_backend` reads."""


class EtcdRendezvousBackend(RendezvousBackend):
    """Holds the state under one key of etcd; tokens are revisions. `name` is its name in the registry."""

    def __init__(self, client: EtcdClient, run_id: str, key_prefix: str = _PREFIX, name: str = "etcd") -> None:
        if not run_id:
            raise ValueRangeError("The run id must be a non-empty string.")
        self._client = client
        self._key = f"{key_prefix}/{run_id}"
        self._name = name
        self._store = store_of(client, run_id, key_prefix)

    @property
    def name(self) -> str:
        return self._name

    @property
    def store(self) -> Store:
        return self._store

    def get_state(self) -> tuple[bytes, Token] | None:
        return self._client.get(self._key)

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        if token is not None and not isinstance(token, int):  # not a token of this backend
            present_state = self.get_state()
            return None if present_state is None else (*present_state, False)
        was_set, present_state = self._client.swap(self._key, token or 0, state)
        return None if present_state is None else (present_state.value, present_state.revision, was_set)


def create_backend(params: RendezvousParameters) -> tuple[EtcdRendezvousBackend, Store]:
    """The backend of `HOST:PORT[,HOST:PORT…]`, and a store in etcd.

    Options: `protocol` (http or https); the files `cacert`, `cert`, `key` (also named `ca_cert`, `ssl_cert`,
    `ssl_cert_key`); `etcd_prefix`, the prefix of keys; `connect_timeout` (5 s) for the first response,
    `heartbeat_timeout` (5 s) for a response about the state, and `read_timeout` (60 s) for any other.
    """
    options = EtcdOptions(
        str(params.get("protocol", "http")).strip().lower(),
        params.read_seconds(),
        params.get_as_float("connect_timeout", 5.0),
        params.get("cacert", params.get("ca_cert")),
        params.get("cert", params.get("ssl_cert")),
        params.get("key", params.get("ssl_cert_key")),
    )
    prefix = str(params.get("etcd_prefix", _PREFIX))
    store = store_of(EtcdClient(params.endpoint, options), params.run_id, prefix)
    hasty = replace(options, timeout=params.get_as_float("heartbeat_timeout", 5.0))
    return EtcdRendezvousBackend(EtcdClient(params.endpoint, hasty), params.run_id, prefix, params.backend), store


def store_of(client: EtcdClient, run_id: str, prefix: str) -> EtcdStore:
    """The store of a job, under other keys than its state."""
    return EtcdStore(client, f"{prefix}/store/{run_id}/")
