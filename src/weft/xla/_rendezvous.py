"""Exchanges between replicas outside of graphs."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from weft import serialization
from weft._base.guards import is_a
from weft._base.types import Arg, PyTree
from weft.errors import ArgumentError, ValueRangeError
from weft.xla._replicas import replicas
from weft.xla._saving import _maybe_convert_to_cpu  # pyright: ignore[reportPrivateUsage]  PyTorch's name
from weft.xla._steps import mark_step

T = TypeVar("T")


def xla_rendezvous(payload: bytes = b"", ordinals: Sequence[int] | None = None, tag: str | None = None) -> list[bytes]:
    """Wait until all replicas have called this; returns the payload of each one, in order of ordinals.

    It ends the step. `ordinals`, if given, must be all replicas; `tag` is for readers only, and is not compared.
    """
    del tag
    here = replicas()
    if ordinals and len(ordinals) != here.size:
        raise ValueRangeError("Only global rendezvous is supported")
    if not is_a(payload, bytes):
        raise ArgumentError(f"`payload` must be bytes, not {type(payload)}")
    mark_step()
    return here.gather(payload, "rendezvous")


def rendezvous(tag: str, payload: bytes = b"", replicas: Sequence[int] = ()) -> list[bytes]:
    """Wait until all replicas have called this; returns the payload of each one, in order of ordinals."""
    return xla_rendezvous(payload, replicas or None, tag)


def mesh_reduce(tag: str, data: PyTree, reduce_fn: Callable[[list[Arg]], T]) -> T:
    """`reduce_fn(list)` of what all replicas have given, in order of ordinals, such as the mean of their accuracies.

    `data` are tensors, numbers, strings and containers of them; its tensors arrive on the CPU. Every replica calls
    `reduce_fn`.
    """
    file = io.BytesIO()
    serialization.save_plain(_maybe_convert_to_cpu(data), file)
    gathered = rendezvous(tag, file.getvalue())
    return reduce_fn([serialization.load(io.BytesIO(one), map_location="cpu") for one in gathered])


def do_on_ordinals(target: Callable[..., T], data: PyTree = (), ordinals: Collection[int] | int = (0,)) -> T | None:
    """`target(*data)` on the replicas with these ordinals, with CPU tensors for XLA tensors; None on the others.

    All replicas must call this, and leave it together. XLA tensors that `target` needs must be in `data`, so that all
    replicas compute them.
    """
    runs = replicas().ordinal in ((ordinals,) if isinstance(ordinals, int) else ordinals)
    on_host = _maybe_convert_to_cpu(data, convert=runs)
    result = target(*on_host) if runs else None
    rendezvous("torch_xla.core.xla_model.do_on_ordinals")
    return result
