"""The interface of every rendezvous: handlers, their parameters and results, and the registry of backends."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Set
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import ClassVar

from weft._base.types import Arg, Result
from weft._comm.stores.store import Store
from weft._comm.transport.addresses import own_address
from weft.distributed.elastic.rendezvous.utils import free_port
from weft.errors import OptionError, ValueRangeError


def check_limits(min_nodes: int, max_nodes: int, nodes: str) -> None:
    """Refuse limits that no number of nodes can satisfy; `nodes` is their name in errors."""
    if min_nodes < 1:
        raise ValueRangeError(f"The minimum number of {nodes} ({min_nodes}) must be greater than zero.")
    if max_nodes < min_nodes:
        raise ValueRangeError(
            f"The maximum number of {nodes} ({max_nodes}) must be greater than or equal to the minimum number of "
            f"{nodes} ({min_nodes})."
        )


@dataclass
class RendezvousStoreInfo:
    """The address of the workers' store."""

    MASTER_ADDR_KEY: ClassVar[str] = "MASTER_ADDR"
    MASTER_PORT_KEY: ClassVar[str] = "MASTER_PORT"
    master_addr: str
    master_port: int

    @staticmethod
    def build(
        rank: int, store: Store, local_addr: str | None = None, server_port: int | None = None
    ) -> RendezvousStoreInfo:
        """Rank 0 writes its address and a port to the store; the other ranks read them."""
        if rank == 0:
            addr = local_addr or own_address()
            store.set(RendezvousStoreInfo.MASTER_ADDR_KEY, addr)
            store.set(RendezvousStoreInfo.MASTER_PORT_KEY, str(server_port or free_port()))
        addr = store.get(RendezvousStoreInfo.MASTER_ADDR_KEY).decode()
        return RendezvousStoreInfo(addr, int(store.get(RendezvousStoreInfo.MASTER_PORT_KEY)))


@dataclass(frozen=True)
class RendezvousInfo:
    """The result of a rendezvous: a store shared by the round, this node's rank, and the number of nodes.

    `round` is the number of the round, which is the same for all of its nodes; None if rounds are not counted.
    """

    store: Store
    rank: int
    world_size: int
    bootstrap_store_info: RendezvousStoreInfo
    round: int | None = None


class RendezvousHandler(ABC):
    """Brings the nodes of a job together, and again after each change."""

    @abstractmethod
    def get_backend(self) -> str:
        """Name of the backend."""

    @property
    def use_agent_store(self) -> bool:
        """Whether the workers use a store that the launcher serves."""
        return False

    @abstractmethod
    def next_rendezvous(self) -> RendezvousInfo:
        """Wait until enough nodes have joined.

        Raises `RendezvousClosedError`, `RendezvousConnectionError`, `RendezvousStateError`, or `RendezvousTimeoutError`
        if too few nodes have joined within the join timeout.
        """

    @abstractmethod
    def is_closed(self) -> bool:
        """Whether the job has ended, so that nobody may join. The answer may be outdated."""

    @abstractmethod
    def set_closed(self) -> None:
        """End the job for all nodes."""

    @abstractmethod
    def num_nodes_waiting(self) -> int:
        """The number of nodes that came late and would take part in a new round. The answer may be outdated."""

    def num_nodes_lost(self) -> int:
        """The number of nodes of the current round that have left or died; 0 if nobody watches them."""
        return 0

    @abstractmethod
    def get_run_id(self) -> str:
        """Name of the job."""

    @abstractmethod
    def shutdown(self) -> bool:
        """End the job for all nodes and release resources; returns whether that has worked."""

    def leave(self) -> bool:
        """Release resources without ending the job for the others; returns whether that has worked."""
        return True


class RendezvousParameters:
    """The parameters of a backend: its name, endpoint, run id, limits, and its own options in `config`."""

    def __init__(
        self,
        backend: str,
        endpoint: str,
        run_id: str,
        min_nodes: int,
        max_nodes: int,
        local_addr: str | None = None,
        **kwargs: Arg,
    ) -> None:
        if not backend:
            raise ValueRangeError("The rendezvous backend name must be a non-empty string.")
        check_limits(min_nodes, max_nodes, "rendezvous nodes")
        self.backend = backend
        self.endpoint = endpoint
        self.run_id = run_id
        self.min_nodes = min_nodes
        self.max_nodes = max_nodes
        self.config = kwargs
        self.local_addr = local_addr

    def get(self, key: str, default: Arg = None) -> Result:
        """An option, or the default."""
        return self.config.get(key, default)

    def refuse_unknown(self, options: Set[str]) -> None:
        """Refuse options other than these; `timeout` is always accepted, since launchers set it."""
        for key in self.config.keys() - options - {"timeout"}:
            near = get_close_matches(key, options, 1)
            raise ValueRangeError(
                f"The {self.backend} rendezvous has no option {key!r}"
                + (f"; did you mean {near[0]}?" if near else ";")
                + f" --rdzv-conf takes {', '.join(sorted(options))}"
            )

    def get_as_bool(self, key: str, default: bool | None = None) -> bool | None:
        """A boolean option: a bool, 0 or 1, or text such as `true`, `yes`, `0`."""
        value = self.get(key, default)
        if value is None or isinstance(value, bool):
            return value
        text = str(value).lower()
        if text in ("1", "true", "t", "yes", "y"):
            return True
        if text in ("0", "false", "f", "no", "n"):
            return False
        raise ValueRangeError(
            f"The rendezvous configuration option '{key}' does not represent a valid boolean value: {value!r}."
        )

    def get_as_int(self, key: str, default: int | None = None) -> int | None:
        """An option that is an integer."""
        value = self.get(key, default)
        if value is None:
            return value
        try:
            return int(value)
        except (ValueError, TypeError):
            raise ValueRangeError(
                f"The rendezvous configuration option '{key}' does not represent a valid integer value: {value!r}."
            ) from None

    def get_as_float(self, key: str, default: float) -> float:
        """An option that is a time in seconds."""
        value = self.get(key, default)
        with suppress(ValueError, TypeError):
            if math.isfinite(seconds := float(value)):
                return seconds
        raise ValueRangeError(
            f"The rendezvous configuration option '{key}' does not represent a number of seconds: {value!r}."
        )

    def read_seconds(self) -> float:
        """The option `read_timeout`: how long a store may take to answer; 60 s by default."""
        seconds = self.get_as_float("read_timeout", 60.0)
        if seconds <= 0:
            raise ValueRangeError(
                f"The read timeout must be a positive integer. It is {seconds:g}; any number above 0 will do"
            )
        return seconds


RendezvousHandlerCreator = Callable[[RendezvousParameters], RendezvousHandler]


class RendezvousHandlerRegistry:
    """Backends by name."""

    def __init__(self) -> None:
        self._registry: dict[str, RendezvousHandlerCreator] = {}

    def register(self, backend: str, creator: RendezvousHandlerCreator) -> None:
        """Use `creator` to make handlers of this backend."""
        if not backend:
            raise ValueRangeError("The rendezvous backend name must be a non-empty string.")
        present = self._registry.get(backend)
        if present is not None and present != creator:
            raise ValueRangeError(
                f"The rendezvous backend '{backend}' cannot be registered with '{creator}' as it is already "
                f"registered with '{present}'."
            )
        self._registry[backend] = creator

    def has(self, backend: str) -> bool:
        """Whether a backend is registered."""
        return backend in self._registry

    def create_handler(self, params: RendezvousParameters) -> RendezvousHandler:
        """A handler of the backend that the parameters name."""
        creator = self._registry.get(params.backend)
        if creator is None:
            raise ValueRangeError(
                f"The rendezvous backend '{params.backend}' is not registered. Did you forget to call `register`? "
                f"Known are {', '.join(sorted(self._registry))}."
            )
        handler = creator(params)
        if handler.get_backend() != params.backend:
            raise OptionError(
                f"The rendezvous backend '{handler.get_backend()}' does not match the requested backend "
                f"'{params.backend}'."
            )
        return handler


rendezvous_handler_registry = RendezvousHandlerRegistry()
