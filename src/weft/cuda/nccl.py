"""NCCL, which XLA brings with it and calls by itself. Collectives of several processes are `weft.distributed`'s."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from weft.errors import UnsupportedCallError


def is_available(tensors: object) -> bool:
    """False: nothing here calls NCCL with several devices' tensors."""
    del tensors
    return False


def _refused(name: str, reason: str = "") -> Callable[..., NoReturn]:
    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise UnsupportedCallError(
            f"cuda.nccl.{name}: XLA calls NCCL by itself, in a version of its own; collectives between processes are "
            "in `weft.distributed`, copies between devices in `weft.cuda.comm`"
        )

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Refused{reason}."
    return refuse


version = _refused("version", ": XLA does not tell it")
all_reduce = _refused("all_reduce")
all_gather = _refused("all_gather")
broadcast = _refused("broadcast")
reduce = _refused("reduce")
reduce_scatter = _refused("reduce_scatter")
