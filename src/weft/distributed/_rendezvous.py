"""Rendezvous of the processes of a job: from an address to a store, a rank and a world size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

from weft._comm.stores.file_store import FileStore
from weft._comm.stores.job_store import store_at
from weft._comm.stores.store import Store
from weft.distributed.constants import default_pg_timeout
from weft.errors import DistError, PreconditionError, ValueRangeError

RendezvousResult = tuple[Store, int, int]
"""A store, this process's rank, and the number of processes."""

Handler = Callable[..., Iterator[RendezvousResult]]

DEFAULT_PORT = 29500


def _number(text: str | None, name: str, source: str) -> int:
    if text is None:
        scheme = source.partition(":")[0]
        raise ValueRangeError(
            f"Error initializing torch.distributed using {scheme}:// rendezvous: {name.replace('_', ' ')} parameter "
            f"missing; {source} needs the {name}: pass {name}= to init_process_group or init_rpc, or put it there"
        )
    try:
        return int(text)
    except ValueError:
        raise ValueRangeError(f"{source}: the {name} must be an integer, but it is {text!r}") from None


def _environment(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ValueRangeError(
            f"Error initializing torch.distributed using env:// rendezvous: environment variable {name} expected, but "
            "not set. Start the program by `weft run`, which sets it, or pass init_method, rank and world_size"
        )
    return value


def _from_environment(
    url: str, rank: int, world_size: int, timeout: timedelta, wait_for_workers: bool = True
) -> Iterator[RendezvousResult]:
    del url
    if rank < 0:
        rank = _number(_environment("RANK"), "rank", "environment variable RANK")
    if world_size < 0:
        world_size = _number(_environment("WORLD_SIZE"), "world_size", "environment variable WORLD_SIZE")
    host = _environment("MASTER_ADDR")
    port = _number(_environment("MASTER_PORT"), "port", "environment variable MASTER_PORT")
    yield store_at(host, port, rank, world_size, timeout, wait_for_workers), rank, world_size


def _from_tcp(
    url: str, rank: int, world_size: int, timeout: timedelta, wait_for_workers: bool = True
) -> Iterator[RendezvousResult]:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError as error:  # its text says whether it is out of range or not a number
        raise ValueRangeError(f"{url!r}: {error}") from None
    if port is None:
        raise ValueRangeError(
            f"Error initializing torch.distributed using tcp:// rendezvous: port number missing; {url!r} must name a "
            "host and a port: tcp://HOST:PORT"
        )
    if not parts.hostname:
        raise ValueRangeError(f"{url!r} must name a host and a port: tcp://HOST:PORT")
    rank, world_size = _from_query(url, rank, world_size)
    yield store_at(parts.hostname, port, rank, world_size, timeout, wait_for_workers), rank, world_size


def _from_file(url: str, rank: int, world_size: int, timeout: timedelta) -> Iterator[RendezvousResult]:
    path = urlsplit(url).path
    if not path:
        raise ValueRangeError(
            f"Error initializing torch.distributed using file:// rendezvous: path missing; {url!r} must name a file: "
            "file:///PATH, which no earlier job has left there"
        )
    rank, world_size = _from_query(url, rank, world_size)
    store = FileStore(path, world_size)
    store.set_timeout(timeout)
    yield store, rank, world_size


def _from_query(url: str, rank: int, world_size: int) -> tuple[int, int]:
    query = {name: values[-1] for name, values in parse_qs(urlsplit(url).query).items()}
    arguments = {"rank": rank >= 0, "world_size": world_size >= 0}
    if any(arguments.values()) and (twice := sorted(arguments.keys() & query)):
        raise PreconditionError(
            f"The url: {url} has node-specific arguments(rank, world_size) already: give {' and '.join(twice)} "
            "there or to init_process_group and init_rpc"
        )
    if rank < 0:
        rank = _number(query.get("rank"), "rank", url)
    if world_size < 0:
        world_size = _number(query.get("world_size"), "world_size", url)
    return rank, world_size


_handlers: dict[str, Handler] = {"env": _from_environment, "tcp": _from_tcp, "file": _from_file}


def register_rendezvous_handler(scheme: str, handler: Handler) -> None:
    """Handle addresses `scheme://…`: `handler(url, rank, world_size, timeout)` yields (store, rank, world size)."""
    if scheme in _handlers:
        raise DistError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = handler


def rendezvous(
    url: str, rank: int = -1, world_size: int = -1, *, timeout: timedelta = default_pg_timeout, **options: Any
) -> Iterator[RendezvousResult]:
    """The results of the handler of an address; -1 stands for a rank or world size that the address gives."""
    if not isinstance(url, str):
        raise DistError(f"`url` must be a string. {type(url)}: {url}")
    scheme = urlsplit(url).scheme
    handler = _handlers.get(scheme)
    if handler is None:
        schemes = ", ".join(f"{name}://" for name in sorted(_handlers))
        advice = "" if "://" in url else f"; write tcp://{url} for a host and a port"
        raise DistError(f"No rendezvous handler for {scheme}://, got the address {url!r}; known are {schemes}{advice}")
    return handler(url, rank=rank, world_size=world_size, timeout=timeout, **options)
