"""`ProcessGroupGloo`: a group that a program creates itself, with the host backend."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from weft._comm.stores.store import Store
from weft.distributed import _backends
from weft.distributed._group import ProcessGroup
from weft.distributed._world import is_thread_rank, register_group
from weft.distributed.constants import default_pg_timeout


class ProcessGroupGloo(ProcessGroup):
    """A group of all processes that share `store`: on one host, or threads of one process."""

    @dataclass
    class _Options:
        """Options: `_timeout` is how long operations wait. Devices and threads cannot be chosen here."""

        _timeout: timedelta = default_pg_timeout
        _devices: list[object] = field(default_factory=list[object])
        _threads: int = 2
        backend: str = "gloo"
        group_name: str = ""
        global_ranks_in_group: list[int] = field(default_factory=list[int])

        @property
        def timeout(self) -> timedelta:
            return self._timeout

    Options = _Options

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta | _Options | None = None) -> None:
        self.options = timeout if isinstance(timeout, self._Options) else self._Options(timeout or default_pg_timeout)
        limit = self.options.timeout
        backend = _backends.join_group("threads" if is_thread_rank() else "shm", store, rank, range(size), limit)
        self._attach("gloo", backend, range(size), store)
        self.requested_name = "gloo"
        register_group(self)

    @staticmethod
    def create_device(hostname: str = "", interface: str = "", lazy_init: bool | None = None) -> None:
        """Does nothing: ranks share memory."""

    @staticmethod
    def create_default_device(lazy_init: bool | None = None) -> None:
        """Does nothing: ranks share memory."""
