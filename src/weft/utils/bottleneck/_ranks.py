"""The figures of all ranks, gathered by rank 0 through the launcher's store."""

from __future__ import annotations

import json
import os
from datetime import timedelta

from weft._comm.stores.job_store import store_at
from weft._comm.stores.store import PrefixStore
from weft.errors import DistError
from weft.utils.bottleneck._figures import Figures

_PATIENCE = timedelta(minutes=5)


def rank() -> int:
    """The rank of this process in its job; 0 without a launcher."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """The number of processes of the job; 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def gathered(own: Figures) -> tuple[list[Figures], list[int]]:
    """The figures of all ranks, and the ranks that gave none; on other ranks than 0, only the own ones."""
    size = world_size()
    if size == 1:
        return [own], []
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = PrefixStore("weft.utils.bottleneck", store_at(address, port, own.rank, size, _PATIENCE))
    store.set(str(own.rank), json.dumps(own.as_dict()))
    if own.rank:
        store.wait(["read"], _PATIENCE)  # rank 0 may be the store's server
        return [own], []
    result, missing = [own], []
    for other in range(1, size):
        try:
            result.append(Figures(**json.loads(store.get(str(other)))))
        except DistError:
            missing.append(other)
    store.set("read", "")
    return result, missing
