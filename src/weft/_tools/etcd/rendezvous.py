"""The older names of the rendezvous in etcd, implemented by the dynamic rendezvous.

PyTorch's implementation uses version 2 of etcd's interface, which servers no longer have.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from weft._comm.stores.store import Store
from weft._comm.transport.addresses import own_address
from weft._tools.etcd.backend import OPTIONS as ETCD_OPTIONS
from weft._tools.etcd.backend import EtcdRendezvousBackend, create_backend, store_of
from weft._tools.etcd.client import EtcdClient
from weft.distributed.elastic.rendezvous._settings import (
    OPTIONS,
    RendezvousSettings,
    RendezvousTimeout,
    address_of,
    settings_of,
)
from weft.distributed.elastic.rendezvous.api import RendezvousParameters
from weft.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler, this_node


class EtcdRendezvousRetryableFailure(Exception):
    """Never raised, since the handler repeats attempts itself; for programs that name it."""


class EtcdRendezvousRetryImmediately(Exception):
    """Never raised; for programs that name it, as `EtcdRendezvousRetryableFailure`."""


@dataclass
class _HandlerParts:
    """The settings, backend and store of a handler."""

    settings: RendezvousSettings
    backend: EtcdRendezvousBackend
    store: Store


class EtcdRendezvous(_HandlerParts):
    """The parts of an `EtcdRendezvousHandler`.

    Args:
        client: a client of etcd, such as `EtcdServer.get_client()`.
        prefix: prefix of the keys in etcd.
        run_id: name of the job.
        num_min_workers, num_max_workers: limits of the number of nodes.
        timeout: seconds that `next_rendezvous` may take.
        last_call_timeout: seconds to wait for more nodes when there are enough.
    """

    def __init__(
        self,
        client: EtcdClient,
        prefix: str,
        run_id: str,
        num_min_workers: int,
        num_max_workers: int,
        timeout: float,
        last_call_timeout: float,
    ) -> None:
        times = RendezvousTimeout(join=timedelta(seconds=timeout), last_call=timedelta(seconds=last_call_timeout))
        super().__init__(
            RendezvousSettings(run_id, num_min_workers, num_max_workers, times, timedelta(seconds=5), 3),
            EtcdRendezvousBackend(client, run_id, prefix),
            store_of(client, run_id, prefix),
        )


class EtcdRendezvousHandler(DynamicRendezvousHandler):
    """Brings nodes together in etcd; `local_addr` is the address by which other nodes reach this one."""

    def __init__(self, rdzv_impl: _HandlerParts, local_addr: str | None) -> None:
        node = this_node(local_addr or own_address())
        super().__init__(node, rdzv_impl.settings, rdzv_impl.backend, rdzv_impl.store)


def create_rdzv_handler(params: RendezvousParameters) -> EtcdRendezvousHandler:
    """A handler for the endpoints `HOST:PORT[,HOST:PORT…]`.

    Options: `timeout` (600 s) for all of it, another name of `join_timeout`, and all options of the dynamic rendezvous
    and of etcd, among them `last_call_timeout` (30 s), `etcd_prefix`, `protocol`, `cacert`, `cert` and `key`.
    """
    params.refuse_unknown(OPTIONS | ETCD_OPTIONS)
    times = {"join_timeout": params.config["timeout"]} if "timeout" in params.config else {}
    named = RendezvousParameters(
        params.backend,
        params.endpoint,
        params.run_id,
        params.min_nodes,
        params.max_nodes,
        params.local_addr,
        **times | params.config,
    )
    return EtcdRendezvousHandler(_HandlerParts(settings_of(named), *create_backend(named)), address_of(named))
