"""A client of etcd's version 3 JSON gateway. If an endpoint does not answer, it uses the next one."""

from __future__ import annotations

import http.client
import json
import logging
import ssl
import threading
import time
import uuid
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from weft._base.types import Json
from weft._comm.deadline import Deadline
from weft.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from weft.errors import RendezvousConnectionError, ValueRangeError

_log = logging.getLogger(__name__)

DEFAULT_PORT = 2379  # etcd's own
_LEASE_SECONDS = 7200  # as in PyTorch: what a job that was killed has left goes after two hours
_ATTEMPT_SECONDS = 3.0
_RECEIPTS = "/weft/elastic/receipts"
_PAUSE = 0.1
_MOST_OPERATIONS = 128  # per request; etcd's default
_WATCH_SECONDS = 5.0  # at most, since a member that has lost contact with the others reports no changes


class VersionedValue(NamedTuple):
    """A value, and the revision of the store that has written it."""

    value: bytes
    revision: int


@dataclass(frozen=True)
class EtcdOptions:
    """How to reach etcd: `timeout` in seconds for a response of any endpoint; TLS files, named as in etcd's tools."""

    protocol: str = "http"
    timeout: float = 60.0
    connect_timeout: float = 5.0
    cacert: str | None = None
    cert: str | None = None
    key: str | None = None


class EtcdClient:
    """Keys and values under one lease, which is renewed while the client is used. It may be used by many threads."""

    def __init__(self, endpoints: str, options: EtcdOptions) -> None:
        self._endpoints = [parse_rendezvous_endpoint(part, DEFAULT_PORT) for part in endpoints.split(",") if part]
        if not self._endpoints:
            raise ValueRangeError("the etcd rendezvous needs --rdzv-endpoint HOST:PORT[,HOST:PORT...]")
        if options.protocol not in ("http", "https"):
            raise ValueRangeError(f"the protocol of etcd must be http or https, got {options.protocol!r}")
        self._options = options
        self._tls = _tls(options) if options.protocol == "https" else None
        self._lock = threading.Lock()
        self._id = uuid.uuid4().hex
        self._lease = self._grant_lease(options.connect_timeout)
        self._renew_at = time.monotonic() + _LEASE_SECONDS / 3

    def get(self, key: str) -> VersionedValue | None:
        """The value of a key."""
        entries = self._call("/v3/kv/range", {"key": _text(key)}).get("kvs")
        return _parse_entry(entries[0]) if entries else None

    def get_all(self, keys: Sequence[str]) -> tuple[list[VersionedValue | None], int]:
        """The values of keys, and the revision at which they were read.

        A request reads as many keys as etcd allows; if there are several, the revision is that of the first one.
        """
        reads = [{"request_range": {"key": _text(key)}} for key in keys]
        answers = [
            self._call("/v3/kv/txn", {"success": reads[at : at + _MOST_OPERATIONS]})
            for at in range(0, len(reads), _MOST_OPERATIONS)
        ]
        entries = [part["response_range"].get("kvs") for answer in answers for part in answer["responses"]]
        revision = int(answers[0]["header"]["revision"]) if answers else 0
        return [_parse_entry(entry[0]) if entry else None for entry in entries], revision

    def await_change(self, key: str, revision: int, seconds: float) -> None:
        """Return when a key may have changed since a revision: after a change, an error, or this many seconds."""
        host, port = self._endpoints[0]
        connection = self._connection(host, port, min(seconds, _WATCH_SECONDS))
        create = {"key": _text(key), "start_revision": str(revision + 1)}
        try:
            # By a watch, since polling each missing key cost a request every 5 to 100 ms for each process that waited.
            with (
                closing(connection),
                closing(self._post(connection, "/v3/watch", {"create_request": create})) as answer,
            ):
                answer.readline()  # the confirmation of the watch
                answer.readline()
        except TimeoutError:
            return
        except (OSError, http.client.HTTPException) as error:
            _log.info("etcd at %s:%d watches nothing: %s", host, port, error)
            time.sleep(min(seconds, _PAUSE))

    def put(self, key: str, value: bytes) -> None:
        """Set a key."""
        self._call("/v3/kv/put", self._put(key, value))

    def swap(self, key: str, revision: int, value: bytes) -> tuple[bool, VersionedValue | None]:
        """Set a key whose value was written at `revision`; 0 for a key that does not exist.

        Returns whether it was set, and the present value. The request also writes a receipt, one for each thread of the
        client. If a response is lost and the request repeated, the receipt shows that the key has already been set.
        """
        receipt, mark = f"{_RECEIPTS}/{self._id}/{threading.get_ident()}", uuid.uuid4().bytes
        reads = [{"request_range": {"key": _text(name)}} for name in (receipt, key)]
        writes = [{"request_put": self._put(name, data)} for name, data in ((receipt, mark), (key, value))]
        compare = {"key": _text(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}
        answer = self._call("/v3/kv/txn", {"compare": [compare], "success": [*writes, *reads], "failure": reads})
        left, entries = (part["response_range"].get("kvs") for part in answer["responses"][-len(reads) :])
        was_set = bool(left) and _parse_entry(left[0]).value == mark
        return was_set, _parse_entry(entries[0]) if entries else None

    def delete(self, key: str) -> bool:
        """Remove a key; returns whether it existed."""
        return int(self._call("/v3/kv/deleterange", {"key": _text(key)}).get("deleted", 0)) > 0

    def put_all(self, pairs: Mapping[str, bytes]) -> None:
        """Set keys, with as many in a request as etcd allows."""
        puts = [{"request_put": self._put(key, value)} for key, value in pairs.items()]
        for at in range(0, len(puts), _MOST_OPERATIONS):
            self._call("/v3/kv/txn", {"success": puts[at : at + _MOST_OPERATIONS]})

    def keys(self, prefix: str) -> list[str]:
        """The keys with a prefix."""
        return [b64decode(entry["key"]).decode() for entry in self._range(prefix, keys_only=True)]

    def entries(self, prefix: str) -> dict[str, bytes]:
        """The keys with a prefix, and their values."""
        return {b64decode(entry["key"]).decode(): _parse_entry(entry).value for entry in self._range(prefix)}

    def _range(self, prefix: str, **options: bool) -> list[dict[str, str]]:
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        body = {"key": _text(prefix), "range_end": _text(end), **options}
        return self._call("/v3/kv/range", body).get("kvs", [])

    def _put(self, key: str, value: bytes) -> dict[str, Json]:
        return {"key": _text(key), "value": b64encode(value).decode(), "lease": self._living_lease()}

    def _living_lease(self) -> str:
        with self._lock:
            if time.monotonic() >= self._renew_at:
                answer = self._call("/v3/lease/keepalive", {"ID": self._lease}).get("result", {})
                # The client was not used for so long that the lease has expired, and its keys with it.
                if int(answer.get("TTL", 0)) <= 0:
                    self._lease = self._grant_lease(self._options.timeout)
                self._renew_at = time.monotonic() + _LEASE_SECONDS / 3
            return self._lease

    def _grant_lease(self, timeout: float) -> str:
        return self._call("/v3/lease/grant", {"TTL": str(_LEASE_SECONDS)}, timeout=timeout)["ID"]

    def _call(self, path: str, body: dict[str, Json], *, timeout: float | None = None) -> dict[str, Json]:
        deadline = Deadline(timeout or self._options.timeout)
        for attempt in count(1):
            host, port = endpoint = self._endpoints[0]
            try:
                return self._ask(host, port, path, body, deadline)
            except (OSError, http.client.HTTPException, ValueError) as error:
                failure = f"{host}:{port}: {error or type(error).__name__}"
            if self._endpoints[0] == endpoint:  # an endpoint that answers is used first
                self._endpoints = [*self._endpoints[1:], endpoint]
            if deadline.expired:
                raise RendezvousConnectionError(
                    f"etcd does not answer at any of {self._names()} ({failure}); is --rdzv-endpoint right, and "
                    "are most of etcd's members running?"
                )
            if attempt % len(self._endpoints) == 0:
                time.sleep(_PAUSE)
        raise AssertionError("turns do not end")

    def _ask(self, host: str, port: int, path: str, body: dict[str, Json], deadline: Deadline) -> dict[str, Json]:
        with closing(
            self._connection(host, port, min(_ATTEMPT_SECONDS, max(deadline.left() or 0.0, _PAUSE)))
        ) as connection:
            return json.loads(self._post(connection, path, body).read())

    def _connection(self, host: str, port: int, seconds: float) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(host, port, timeout=seconds)
        return http.client.HTTPSConnection(host, port, timeout=seconds, context=self._tls)

    def _post(
        self, connection: http.client.HTTPConnection, path: str, body: dict[str, Json]
    ) -> http.client.HTTPResponse:
        """The response to a request; `OSError` if etcd refuses it."""
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise OSError(f"HTTP status {answer.status}: {answer.read()[:200].decode(errors='replace')}")
        return answer

    def _names(self) -> str:
        return ", ".join(f"{host}:{port}" for host, port in self._endpoints)


def _tls(options: EtcdOptions) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.cacert)
    if options.cert:
        context.load_cert_chain(options.cert, options.key)
    return context


def _text(key: str) -> str:
    return b64encode(key.encode()).decode()


def _parse_entry(entry: dict[str, str]) -> VersionedValue:
    return VersionedValue(b64decode(entry.get("value", "")), int(entry["mod_revision"]))
