"""NCCL, which XLA brings with it and calls by itself. Collectives of several processes are `weft.distributed`'s."""

from __future__ import annotations

from typing import NoReturn

from weft.errors import UnsupportedCallError


def is_available(tensors: object) -> bool:
    """False: nothing here calls NCCL with several devices' tensors."""
    del tensors
    return False


def _refuse(name: str) -> NoReturn:
    raise UnsupportedCallError(
        f"cuda.nccl.{name}: XLA calls NCCL by itself, in a version of its own; collectives between processes are in "
        "`weft.distributed`, copies between devices in `weft.cuda.comm`"
    )


def version() -> tuple[int, ...]:
    """Refused: XLA does not tell it."""
    _refuse("version")


def all_reduce(*args: object, **kwargs: object) -> None:
    """Refused."""
    _refuse("all_reduce")


def all_gather(*args: object, **kwargs: object) -> None:
    """Refused."""
    _refuse("all_gather")


def broadcast(*args: object, **kwargs: object) -> None:
    """Refused."""
    _refuse("broadcast")


def reduce(*args: object, **kwargs: object) -> None:
    """Refused."""
    _refuse("reduce")


def reduce_scatter(*args: object, **kwargs: object) -> None:
    """Refused."""
    _refuse("reduce_scatter")
