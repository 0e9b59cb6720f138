"""The figures of all ranks, gathered by rank 0 through the launcher's store."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta

from weft._comm.stores import keys
from weft._comm.stores.job_store import store_at
from weft._comm.stores.store import PrefixStore
from weft.errors import DistError
from weft.utils.bottleneck._figures import Figures

_PATIENCE = timedelta(minutes=5)
_SHORT_PATIENCE = timedelta(seconds=20)  # of a rank whose script has failed, for the others to fail as well


def rank() -> int:
    """The rank of this process in its job; 0 without a launcher."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """The number of processes of the job; 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def gathered(own: Figures, *, failed: bool) -> Generator[tuple[list[Figures], list[int]]]:
    """A block with the figures of all ranks, and the ranks that gave none; on other ranks than 0, only the own ones.

    It ends on all ranks when rank 0 has ended it, since the launcher ends all others after one that has failed.
    """
    size, patience = world_size(), _SHORT_PATIENCE if failed else _PATIENCE
    if size == 1:
        yield [own], []
        return
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = PrefixStore(keys.FIGURES, store_at(address, port, own.rank, size, patience))
    store.set(keys.member(own.rank), json.dumps(own.as_dict()))
    if own.rank:
        yield [own], []
        try:
            store.wait([keys.FIGURES_READ], patience)
        except DistError:
            if not failed:
                raise
        return
    result, missing = [own], []
    for other in range(1, size):
        try:
            result.append(Figures(**json.loads(store.get(keys.member(other)))))
        except DistError:
            missing.append(other)
    yield result, missing
    store.set(keys.FIGURES_READ, "")
