"""What PyTorch's tests of the launcher's parts expect to be refused, and as what."""

from __future__ import annotations

import signal
from datetime import timedelta

import pytest

from tests.distributed.refusals import refuses, rows
from weft._comm.stores.store import HashStore
from weft.distributed.elastic.agent.server.api import WorkerSpec
from weft.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std, start_processes
from weft.distributed.elastic.multiprocessing.errors import record
from weft.distributed.elastic.rendezvous import RendezvousHandlerRegistry, RendezvousParameters
from weft.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend, create_backend
from weft.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    RendezvousTimeout,
    create_handler,
)
from weft.distributed.elastic.rendezvous.static_tcp_rendezvous import create_rdzv_handler
from weft.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from weft.distributed.elastic.timer import configure, expires
from weft.distributed.elastic.utils import get_env_variable_or_raise
from weft.distributed.elastic.utils.data import ElasticDistributedSampler
from weft.distributed.elastic.utils.distributed import create_c10d_store
from weft.distributed.elastic.utils.store import barrier
from weft.errors import DistStoreError, RendezvousClosedError, RendezvousStateError, RendezvousTimeoutError


def params(**changed):
    given = {"backend": "dummy", "endpoint": "e", "run_id": "r", "min_nodes": 3, "max_nodes": 6}
    return RendezvousParameters(**{**given, **changed})


def registered(*makers, ask=None):
    registry = RendezvousHandlerRegistry()
    for make in makers:
        registry.register("dummy", make)
    if ask is not None:
        registry.create_handler(params(backend=ask))


class Other:
    """A handler of another backend than it is registered for."""

    def __init__(self, params):
        pass

    def get_backend(self):
        return "other"


def dynamic(**changed):
    store = HashStore()
    given = {"run_id": "r", "store": store, "min_nodes": 3, "max_nodes": 6}
    return DynamicRendezvousHandler.from_backend(backend=C10dRendezvousBackend(store, "b"), **{**given, **changed})


def meeting(close=False, state=None):
    store = HashStore()
    backend = C10dRendezvousBackend(store, "r")
    if state is not None:
        backend.set_state(state)
    limits = {"min_nodes": 2, "max_nodes": 2, "join_timeout": "0.1", "last_call_timeout": "0.1"}
    handler = create_handler(store, backend, params(backend="c10d", **limits))
    if close:
        handler.set_closed()
    try:
        handler.next_rendezvous()
    finally:
        handler.shutdown()


def c10d(**options):
    given = {"backend": "c10d", "endpoint": "localhost:1", "min_nodes": 1, "max_nodes": 1}
    create_backend(params(**{**given, **options}))


def static(endpoint):
    create_rdzv_handler(params(backend="static", endpoint=endpoint, min_nodes=1, max_nodes=1, rank=0))


def spec(**changed):
    given = {"role": "t", "local_world_size": 1, "rdzv_handler": None, "entrypoint": print}
    return WorkerSpec(**{**given, **changed})


def no_timer():
    configure(None)
    with expires(after=1):
        pass


@record
def signalled():
    raise SignalException("mine", signal.SIGTERM)


@pytest.mark.parametrize(
    ("call", "kinds", "text"),
    rows(
        ("no backend", lambda: params(backend=""), ValueError, "backend name must be a non-empty string"),
        ("no nodes", lambda: params(min_nodes=0), ValueError, r"\(0\) must be greater than zero"),
        ("fewer nodes", lambda: params(max_nodes=2), ValueError, r"\(2\) must be greater than or equal .*\(3\)"),
        ("no bool", lambda: params(x="Ture").get_as_bool("x"), ValueError, "'x' does not represent a valid boolean"),
        ("no int", lambda: params(x="3b").get_as_int("x"), ValueError, "'x' does not represent a valid integer"),
        ("two makers", lambda: registered(Other, lambda _: None), ValueError, "'dummy' cannot be registered"),
        ("no maker", lambda: registered(ask="dummy"), ValueError, "'dummy' is not registered"),
        ("other maker", lambda: registered(Other, ask="dummy"), RuntimeError, "'other' does not match .*'dummy'"),
        ("no host", lambda: parse_rendezvous_endpoint("~:123", 1), ValueError, "'~:123' must be a dot-separated list"),
        ("no port", lambda: parse_rendezvous_endpoint("a.com:abc", 1), ValueError, "'a.com:abc' must be an integer"),
        ("large port", lambda: parse_rendezvous_endpoint("a.com:65536", 1), ValueError, "must be an integer"),
        ("static without port", lambda: static("localhost"), ValueError, "port"),
        ("static without endpoint", lambda: static(""), ValueError, "endpoint"),
        ("store type", lambda: c10d(store_type="dummy"), ValueError, "^Invalid store type"),
        ("read timeout", lambda: c10d(read_timeout="-10"), ValueError, "read timeout must be a positive"),
        ("run id", lambda: C10dRendezvousBackend(HashStore(), ""), ValueError, "run id must be a non-empty string"),
        ("join timeout", lambda: RendezvousTimeout(timedelta(0)), ValueError, r"join timeout \(0:00:00\) must be pos"),
        ("dynamic run id", lambda: dynamic(run_id=""), ValueError, "run id must be a non-empty string"),
        ("dynamic nodes", lambda: dynamic(min_nodes=0), ValueError, r"\(0\) must be greater than zero"),
        (
            "dynamic fewer nodes",
            lambda: dynamic(max_nodes=2),
            ValueError,
            r"\(2\) must be greater than or equal .*\(3\)",
        ),
        ("closed", lambda: meeting(close=True), RendezvousClosedError, "has ended"),
        ("alone", meeting, RendezvousTimeoutError, "1 of at least 2 nodes"),
        ("corrupt", lambda: meeting(state=b"corrupt"), RendezvousStateError, "corrupt"),
        *[
            (f"streams {text!r}", lambda text=text: Std.from_str(text), ValueError, "")
            for text in ("0:1,", "11", "1,0:1")
        ],
        (
            "environments",
            lambda: start_processes("e", print, {0: ()}, {0: {}, 1: {}}, DefaultLogsSpecs()),
            RuntimeError,
            "rank",
        ),
        (
            "log directory",
            lambda: DefaultLogsSpecs(log_dir=__file__).reify({0: {}}),
            NotADirectoryError,
            "test_refusals",
        ),
        ("no workers", lambda: spec(local_world_size=0), AssertionError, "local_world_size"),
        ("interval", lambda: spec(monitor_interval=0), AssertionError, "monitor_interval"),
        ("no entrypoint", lambda: spec(entrypoint=None), AssertionError, "entrypoint"),
        ("no timer", no_timer, RuntimeError, "^Configure timer client"),
        ("variable", lambda: get_env_variable_or_raise("NO_SUCH"), ValueError, "NO_SUCH"),
        ("no port of several", lambda: create_c10d_store(True, "localhost", world_size=2), ValueError, "server_port"),
        ("barrier", lambda: barrier(HashStore(), 3, "k", barrier_timeout=0.1), DistStoreError, ""),
        ("start", lambda: ElasticDistributedSampler([1, 2], 1, 0, start_index=5), ValueError, "5"),
        ("not sized", lambda: ElasticDistributedSampler(iter([1]), 1, 0), TypeError, "has no len"),
        ("signal", signalled, SignalException, "^mine$"),
    ),
)
def test_parts_of_the_launcher(call, kinds, text):
    refuses(call, kinds, text or None)
