"""Rendezvous of a fixed set of nodes whose ranks and master address are given."""

from __future__ import annotations

import os
import socket
from datetime import timedelta

from weft._comm.stores import keys
from weft._comm.stores.store import PrefixStore, Store
from weft._comm.stores.tcp_store import TCPStore
from weft.distributed.elastic.rendezvous._connect import CONNECT_SECONDS, connect_to_store
from weft.distributed.elastic.rendezvous.api import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)
from weft.distributed.elastic.rendezvous.utils import fact, parse_rendezvous_endpoint
from weft.errors import DistError, RendezvousConnectionError, RendezvousStateError, ValueRangeError

_OPTIONS = frozenset({"connect_timeout", "rank", "timeout"})


class StaticTCPRendezvous(RendezvousHandler):
    """The node of rank 0 serves the store at the master's address; nobody can join late."""

    def __init__(
        self,
        master_addr: str,
        master_port: int,
        rank: int,
        world_size: int,
        run_id: str,
        timeout: timedelta,
        connect_timeout: float = CONNECT_SECONDS,
    ) -> None:
        self.master_addr = master_addr
        self.master_port = master_port
        self.rank = rank
        self.world_size = world_size
        self.run_id = run_id
        self.timeout = timeout
        self.connect_timeout = connect_timeout
        self._store: TCPStore | None = None
        self._round: int | None = None

    def get_backend(self) -> str:
        return "static"

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        if self._store is None:
            self._store = self._opened()
        store_info = RendezvousStoreInfo(self.master_addr, self._store.port)
        self._round = self._next_round(self._store)
        part = PrefixStore(self.run_id, self._store)
        return RendezvousInfo(part, self.rank, self.world_size, store_info, self._round)

    def _next_round(self, store: Store) -> int:
        """The number of the round after this node's last one, or a later one that another node has begun.

        Nodes may have started their workers unequally often; so the latest number stands in the store.
        """
        before, number = ("", 0) if self._round is None else (str(self._round), self._round + 1)
        return int(store.compare_set(keys.static_round(self.run_id), before, str(number)))

    def _opened(self) -> TCPStore:
        if self.rank == 0:
            try:
                store = TCPStore(
                    self.master_addr, self.master_port, is_master=True, timeout=self.timeout, wait_for_workers=False
                )
            except (DistError, OSError) as error:
                raise RendezvousConnectionError(
                    f"node rank 0 cannot serve {self.master_addr}:{self.master_port}: {fact(error)}; choose "
                    "another --master-port"
                ) from error
        else:
            store = connect_to_store(self.master_addr, self.master_port, self.timeout, self.connect_timeout)
        self._claim(store)
        return store

    def _claim(self, store: Store) -> None:
        """Check that all nodes have the same world size, and that no two have the same rank."""
        if self.rank == 0:
            store.set(keys.static_size(self.run_id), str(self.world_size))
        elif (size := int(store.get(keys.static_size(self.run_id)))) != self.world_size:
            raise RendezvousStateError(f"nodes disagree about --nnodes: {size} on node rank 0, {self.world_size} here")
        me = f"process {os.getpid()} on {socket.gethostname()}"
        owner = store.compare_set(keys.static_node(self.run_id, self.rank), "", me).decode()
        if owner != me:
            raise RendezvousStateError(
                f"two nodes have --node-rank {self.rank}: {owner} and {me}; give each node its own rank, 0 to "
                f"{self.world_size - 1}"
            )

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """Does nothing: nobody can join late."""

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self.run_id

    def shutdown(self) -> bool:
        self._store = None
        return True


def create_rdzv_handler(params: RendezvousParameters) -> RendezvousHandler:
    """A handler for the master's endpoint `HOST:PORT`.

    Options: `rank` of the node; `timeout` (60 s) for each response; `connect_timeout` (30 s) for the first one.
    """
    params.refuse_unknown(_OPTIONS)
    if "rank" not in params.config:
        raise ValueRangeError("rank is absent in RendezvousParameters. Try add --node-rank to the cmd request")
    endpoint = params.endpoint.strip()
    if not endpoint:
        raise ValueRangeError(
            "endpoint is absent in RendezvousParameters. Try add --master-port and --master-addr to the cmd request"
        )
    host, port = parse_rendezvous_endpoint(endpoint, -1)
    if port == -1:
        raise ValueRangeError(f"the endpoint {endpoint!r} of the static rendezvous needs a port: pass --master-port")
    rank, world_size = params.get_as_int("rank") or 0, params.max_nodes
    if params.min_nodes != params.max_nodes:
        raise ValueRangeError(
            f"the static rendezvous needs a fixed number of nodes, got --nnodes {params.min_nodes}:{params.max_nodes}; "
            "pass --rdzv-backend c10d for a range"
        )
    if not 0 <= rank < world_size:
        raise ValueRangeError(f"--node-rank must be at least 0 and less than --nnodes {world_size}, got {rank}")
    if port == 0 and world_size > 1:
        raise ValueRangeError(f"port 0 takes any free one, which others cannot know; {world_size} nodes need a port")
    timeout = timedelta(seconds=params.get_as_float("timeout", 60.0))
    patience = params.get_as_float("connect_timeout", CONNECT_SECONDS)
    return StaticTCPRendezvous(host, port, rank, world_size, params.run_id, timeout, patience)
