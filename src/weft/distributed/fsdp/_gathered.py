"""The whole parameters of a group, as one all-gather makes them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Protocol

import jax
import jax.numpy as jnp

from weft._base.autocast import NO_AUTOCAST
from weft._base.pending import Pending
from weft._base.state import ambient, using
from weft._base.types import Result
from weft._lazy.aval import Aval, plain_type
from weft._lazy.record import record
from weft._lazy.role import Interior
from weft._lazy.signature import Signature
from weft._lazy.value import Absent, Value
from weft._tensor.composite.create import empty
from weft._tensor.tensor import Tensor, wrap
from weft.distributed import _collectives
from weft.distributed._group import ProcessGroup
from weft.distributed._observers import collective, requested
from weft.distributed.fsdp._data_parallel import DataParallel
from weft.distributed.fsdp._flat import FlatSlot, joined_parts, wholes_of
from weft.distributed.fsdp._policies import AllGather
from weft.distributed.tensor._sharding import local_part


class own_program(using):
    """A block whose operators belong to no graph and no program of the user's."""

    def __init__(self, *, grad: bool = False) -> None:
        super().__init__(grad=grad, inference=False, pending=Pending(), autocast=NO_AUTOCAST)


class GatherDerivative(Protocol):
    """Gradients of the parts, from those of the whole parameters (by position)."""

    def __call__(self, gathered: Gathered, cotangents: dict[int, Value]) -> list[Value | None]: ...


class Gathered:
    """Values of whole parameters. Their arrays can be released, and come back when a program reads them.

    They are outputs of one application on the tape, whose inputs are the parts: its derivative reduces the gradients.

    parts      the values of the parts that were gathered
    few        after the forward pass, so many ranks keep the buffers in parts; None: the parts are gathered again
    on_return  called when they are gathered again
    """

    def __init__(
        self,
        parts: Sequence[Value],
        types: Sequence[Aval],
        slots: Sequence[FlatSlot],
        ranks: DataParallel,
        comm: AllGather | None,
    ) -> None:
        self.parts = list(parts)
        self._types = list(types)
        self._slots = list(slots)
        self._ranks = ranks
        self._comm = comm
        self._values: list[weakref.ref[Value]] = []
        self._exchanges: list[tuple[list[int], Tensor, Result]] | None = None  # positions, buffer, work to wait for
        self._pieces: list[tuple[list[int], Tensor]] | None = None  # of the buffers, if they are kept by a few ranks
        self.few: DataParallel | None = None
        self.on_return: Callable[[Gathered], None] = lambda gathered: None
        self.is_here = False

    def record(self, derivative: GatherDerivative, trained: Sequence[bool]) -> list[Value]:
        """The values, absent so far. Gradients flow to the parts that are `trained`."""
        signature = _signature(tuple([plain_type(part.aval) for part in self.parts]), tuple(self._types))
        with own_program(grad=True):
            values = list(record(signature, tuple(self.parts), ambient()))

        def differentiate(cotangents: dict[int, Value], members: list[Value]) -> list[Value | None]:
            del members
            return derivative(self, cotangents)

        for value, flows in zip(values, trained, strict=True):
            value.role = None
            if flows and value.aval.dtype.is_differentiable:
                value.role = Interior(custom=differentiate)
            # The values are on the tape before they are here: whoever reads them first waits for the collective.
            value.content = Absent(self.finish)
        self._values = [weakref.ref(value) for value in values]
        return values

    # --- there and back ---

    def begin(self, *, async_op: bool = False) -> None:
        """Start to gather, unless that has been done."""
        if self._exchanges is not None or self.is_here:
            return
        with own_program(), requested():
            # A few neighbours together have all of it, so nothing is sent beyond them.
            if self._pieces is not None:
                group = self.few.shard_group  # pyright: ignore[reportOptionalMemberAccess]  where there are pieces
                self._exchanges = [(at, *self._gather(piece, group, async_op)) for at, piece in self._pieces]
                return
            self._exchanges = []
            for at in self._by_dtype():
                own = [wrap(local_part(self.parts[i])).to(self._types[i].dtype) for i in at]
                flat = joined_parts(own, [self._slots[i] for i in at])
                self._exchanges.append((at, *self._gather(flat, self._ranks.shard_group, async_op)))

    def _by_dtype(self) -> list[list[int]]:
        """The positions of parameters that share a buffer."""
        kinds = dict.fromkeys(aval.dtype for aval in self._types)
        return [[at for at, aval in enumerate(self._types) if aval.dtype is dtype] for dtype in kinds]

    def _gather(self, flat: Tensor, group: ProcessGroup, async_op: bool) -> tuple[Tensor, Result]:
        if group.size() == 1:
            return flat, None
        size = (group.size() * flat.numel(),)
        # Announced with the values that are sent, so that modes that count communication see it as they see DTensor's.
        with collective("all_gather_into_tensor", (flat._read(),), apart=True):
            if self._comm is not None:
                output = self._comm.allocate(size, dtype=flat.dtype, device=flat.device)
                return output, self._comm(output, flat, group, async_op)
            output = empty(size, dtype=flat.dtype, device=flat.device)
            return output, _collectives.all_gather_into_tensor(output, flat, group, async_op)

    def finish(self) -> None:
        """Wait until the arrays are here."""
        if self.is_here:
            return
        self.begin()
        # Before this thread waits: what the backward pass needs next travels meanwhile.
        self.on_return(self)
        assert self._exchanges is not None, "it has begun"
        exchanges, self._exchanges = self._exchanges, None
        pieces: list[tuple[list[int], Tensor]] = []
        with own_program():
            for at, flat, work in exchanges:
                if work is not None:
                    work.wait()
                wholes = wholes_of(flat, [self._slots[i] for i in at])
                if self.few is not None:
                    size = flat.numel() // self.few.parts
                    pieces.append((at, flat.narrow(0, self.few.index * size, size).clone()))
                for i, whole in zip(at, wholes, strict=True):
                    value = self._values[i]()
                    if value is not None:
                        value.content = whole._read().read()
            for _, piece in pieces:
                # Computed now: a pending clone would keep the whole buffer that it is cut from.
                piece._read().read()
        self._pieces = pieces if self.few is not None else None
        self.is_here = True

    def release(self) -> None:
        """Give the arrays up, until they are read again."""
        if not self.is_here:
            return
        self.is_here = False
        for ref in self._values:
            value = ref()
            if value is not None:
                value.content = Absent(self.finish)


@lru_cache(maxsize=1024)
def _signature(parts: tuple[Aval, ...], types: tuple[Aval, ...]) -> Signature:
    """The application on the tape. It is never computed: its values get their arrays from a collective."""
    return Signature("all_gather", partial(_zeros, types), parts, device=types[0].device).with_types(types)


def _zeros(types: tuple[Aval, ...], *parts: object) -> tuple[jax.Array, ...]:
    del parts
    return tuple(jnp.zeros(aval.shape, aval.dtype.numpy) for aval in types)
