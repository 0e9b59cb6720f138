"""Errors of backward passes in which parameters get no gradient: they say how this rank differs from the others.

Parameters are given by their positions in `names`.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from weft._comm.stores import keys
from weft.distributed._group import ProcessGroup
from weft.distributed._objects import all_gather_object
from weft.distributed._world import abridged
from weft.errors import DistBackendError, GradientError


def refuse_unused(group: ProcessGroup, names: Sequence[str], unused: list[int], *, recorded: bool) -> None:
    """Raise `RuntimeError` for parameters without a gradient; `recorded`: averages are part of a program."""
    if recorded:  # the others may come with a program
        try:
            group.await_ranks(
                f"a backward pass without gradients of the parameters {abridged([names[at] for at in unused])}"
            )
        except DistBackendError as error:
            raise _error(group, names, unused, []) from error
        raise _error(group, names, unused, [])
    store, key = group.store, keys.without_gradient(group.rank())
    if store is not None:
        store.set(key, json.dumps(unused))
    unused_of_ranks: list[list[int]] = [[]] * group.size()
    try:
        all_gather_object(unused_of_ranks, unused, group)
    except DistBackendError as error:  # the others exchange averages, so they have no unused parameters
        raise _error(group, names, unused, _published(group)) from error
    if store is not None:
        # All ranks know of each other's now; these must not explain a later failure.
        store.delete_key(key)
    raise _error(group, names, unused, unused_of_ranks)


@contextmanager
def explaining(group: ProcessGroup, names: Sequence[str]) -> Generator[None]:
    """Within this, averages that fail because other ranks miss gradients raise an error that says so."""
    try:
        yield
    except DistBackendError as error:
        misses = _published(group)
        if any(misses):
            raise _error(group, names, [], misses) from error
        hint_at_join(error)
        raise


def hint_at_join(error: DistBackendError) -> None:
    """Add advice about uneven inputs to an error that they may have caused."""
    if "has left the group" in str(error) or "call different operations" in str(error):
        error.add_note("if ranks have unequal numbers of batches, train in `with model.join():`")


def _published(group: ProcessGroup) -> list[list[int]]:
    """By rank, the unused parameters that ranks have published in the store."""
    store, entries = group.store, map(keys.without_gradient, range(group.size()))
    return [json.loads(store.get(key)) if store is not None and store.check([key]) else [] for key in entries]


def _error(
    group: ProcessGroup, names: Sequence[str], unused: list[int], unused_of_ranks: Sequence[list[int]]
) -> GradientError:
    def named(parameters: list[int]) -> str:
        return ", ".join(names[at] for at in parameters) or "none"

    others = [rank for rank, other_unused in enumerate(unused_of_ranks) if other_unused != unused]
    differs = ""
    if others:
        other = named(unused_of_ranks[others[0]])
        differs = f" The first rank that differs is rank {others[0]}, where they are: {other}."
    return GradientError(
        f"Rank {group.rank()}: parameters without a gradient in this backward pass: {named(unused)}.{differs} Pass "
        "find_unused_parameters=True to DistributedDataParallel, or make sure that the loss depends on all of them"
    )
