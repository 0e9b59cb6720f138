"""Rendezvous of the processes of a job: from an address to a store, a rank and a world size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from numbers import Integral
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

from weft._base.types import Arg
from weft._comm.stores.file_store import FileStore
from weft._comm.stores.job_store import store_at
from weft._comm.stores.store import Store
from weft.distributed.constants import default_pg_timeout
from weft.errors import DistError, PreconditionError, ValueRangeError

RendezvousResult = tuple[Store, int, int]
"""A store, this process's rank, and the number of processes."""

Handler = Callable[..., Iterator[RendezvousResult]]


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
    url: str, timeout: timedelta = default_pg_timeout, wait_for_workers: bool = True
) -> Iterator[RendezvousResult]:
    query = _query_of(url)
    rank = _number(query.get("rank") or _environment("RANK"), "rank", "environment variable RANK")
    world_size = _number(
        query.get("world_size") or _environment("WORLD_SIZE"), "world_size", "environment variable WORLD_SIZE"
    )
    host = _environment("MASTER_ADDR")
    port = _number(_environment("MASTER_PORT"), "port", "environment variable MASTER_PORT")
    yield store_at(host, port, rank, world_size, timeout, wait_for_workers), rank, world_size


def _from_tcp(
    url: str, timeout: timedelta = default_pg_timeout, wait_for_workers: bool = True
) -> Iterator[RendezvousResult]:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError as error:  # its text says whether it is out of range or not a number
        raise ValueRangeError(f"{url.partition('?')[0]!r}: {error}") from None
    if port is None:
        raise ValueRangeError(
            f"Error initializing torch.distributed using tcp:// rendezvous: port number missing; {url!r} must name a "
            "host and a port: tcp://HOST:PORT"
        )
    rank, world_size = _rank_and_size(url)
    if not parts.hostname:
        raise PreconditionError(f"hostname cannot be None: {url!r} must name a host and a port: tcp://HOST:PORT")
    yield store_at(parts.hostname, port, rank, world_size, timeout, wait_for_workers), rank, world_size


def _from_file(url: str, timeout: timedelta = default_pg_timeout) -> Iterator[RendezvousResult]:
    path = urlsplit(url).path
    if not path:
        raise ValueRangeError(
            f"Error initializing torch.distributed using file:// rendezvous: path missing; {url!r} must name a file: "
            "file:///PATH, which no earlier job has left there"
        )
    rank, world_size = _rank_and_size(url)
    store = FileStore(path, world_size)
    store.set_timeout(timeout)
    yield store, rank, world_size


def _query_of(url: str) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(urlsplit(url).query).items()}


def _rank_and_size(url: str) -> tuple[int, int]:
    query = _query_of(url)
    return _number(query.get("rank"), "rank", url), _number(query.get("world_size"), "world_size", url)


# no cell: read where processes meet, which is no part of a capture
_handlers: dict[str, Handler] = {"env": _from_environment, "tcp": _from_tcp, "file": _from_file}


def register_rendezvous_handler(scheme: str, handler: Handler) -> None:
    """Handle addresses `scheme://…`: `handler(url, timeout=…)` yields (store, rank, world size).

    A rank and a world size that `init_process_group` is given stand in the address: `scheme://…?rank=0&world_size=2`.
    """
    if scheme in _handlers:
        raise DistError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = handler


def rendezvous(url: object, rank: int = -1, world_size: int = -1, **options: Arg) -> Iterator[RendezvousResult]:
    """The results of the handler of an address; -1 stands for a rank or world size that the address gives.

    `options`, such as `timeout`, are for the handler. `AssertionError` if a rank or a world size is given twice.
    """
    if not isinstance(url, str):
        raise DistError(f"`url` must be a string. {type(url)}: {url}")
    for name, number in (("rank", rank), ("world_size", world_size)):
        if not isinstance(number, Integral):
            raise DistError(f"`{name}` must be an integer. {number}")
    scheme = urlsplit(url).scheme
    handler = _handlers.get(scheme)
    if handler is None:
        schemes = ", ".join(f"{name}://" for name in sorted(_handlers))
        advice = "" if "://" in url else f"; write tcp://{url} for a host and a port"
        raise DistError(f"No rendezvous handler for {scheme}://, got the address {url!r}; known are {schemes}{advice}")
    return handler(_with_arguments(url, rank, world_size), **options)


def _with_arguments(url: str, rank: int, world_size: int) -> str:
    """The address with a rank and a world size that are not -1 in its query."""
    arguments = {name: number for name, number in (("rank", rank), ("world_size", world_size)) if number != -1}
    if not arguments:
        return url
    parts, query = urlsplit(url), _query_of(url)
    if twice := sorted({"rank", "world_size"} & query.keys()):
        raise PreconditionError(
            f"The url: {url} has node-specific arguments(rank, world_size) already: give {' and '.join(twice)} "
            "there or to init_process_group and init_rpc"
        )
    return urlunsplit(parts._replace(query=urlencode({**query, **arguments})))
