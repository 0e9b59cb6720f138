"""The registered backends."""

from __future__ import annotations

from importlib import import_module

from weft.distributed.elastic.rendezvous._settings import OPTIONS
from weft.distributed.elastic.rendezvous.api import (
    RendezvousHandler,
    RendezvousParameters,
    rendezvous_handler_registry,
)
from weft.distributed.elastic.rendezvous.c10d_rendezvous_backend import OPTIONS as C10D_OPTIONS
from weft.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
from weft.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler
from weft.distributed.elastic.rendezvous.static_tcp_rendezvous import create_rdzv_handler


def _c10d(params: RendezvousParameters) -> RendezvousHandler:
    params.refuse_unknown(OPTIONS | C10D_OPTIONS)
    backend, store = create_backend(params)
    return create_handler(store, backend, params)


def _etcd(params: RendezvousParameters) -> RendezvousHandler:
    etcd = import_module("weft._tools.etcd.rendezvous")  # imports HTTP and TLS
    return etcd.create_rdzv_handler(params)


def _etcd_v2(params: RendezvousParameters) -> RendezvousHandler:
    etcd = import_module("weft._tools.etcd.backend")
    params.refuse_unknown(OPTIONS | etcd.OPTIONS)
    backend, store = etcd.create_backend(params)
    return create_handler(store, backend, params)


rendezvous_handler_registry.register("c10d", _c10d)
rendezvous_handler_registry.register("etcd", _etcd)
rendezvous_handler_registry.register("etcd-v2", _etcd_v2)
rendezvous_handler_registry.register("static", create_rdzv_handler)


def get_rendezvous_handler(params: RendezvousParameters) -> RendezvousHandler:
    """A handler of the backend named in the parameters.

    A backend that is not registered is looked up among the entry points of the group `torchrun.handlers`, by which
    installed packages offer theirs: the entry point names a function that returns the creator of handlers.
    """
    if not rendezvous_handler_registry.has(params.backend):
        metadata = import_module("importlib.metadata")  # it is slow to import, and rarely needed
        for entry_point in metadata.entry_points(group="torchrun.handlers", name=params.backend):
            rendezvous_handler_registry.register(params.backend, entry_point.load()())
    return rendezvous_handler_registry.create_handler(params)
