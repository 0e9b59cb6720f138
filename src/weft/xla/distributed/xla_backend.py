"""`torch_xla.distributed.xla_backend`: importing it makes `init_process_group("xla", init_method="xla://")` known."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from weft.distributed._rendezvous import RendezvousResult, register_rendezvous_handler, rendezvous


def _from_environment(url: str, rank: int, world_size: int, timeout: timedelta) -> Iterator[RendezvousResult]:
    """The store, rank and world size of a replica or of a worker of `weft run`, from the environment."""
    del url
    return rendezvous("env://", rank, world_size, timeout=timeout)


register_rendezvous_handler("xla", _from_environment)
