"""Reference counts of remote references.

The owner of a value keeps it while it knows of a fork (a user's copy of the reference), or has a reference itself. A
user that sends its reference to another worker keeps it until the owner knows of the new fork (`parents`); so the owner
knows of at least one fork until the last one is deleted. Messages of different workers may arrive in any order.

This module only keeps the counts; the caller sends the messages. It is thread-safe.
"""

from __future__ import annotations

import threading
from itertools import count
from typing import NamedTuple
from weakref import WeakValueDictionary

from weft._base.types import Result
from weft.errors import RpcError
from weft.futures import Future

_INCARNATION_BITS = 48  # the lowest bit of the incarnation in a local number

Holder = tuple[int, int]
"""Number and incarnation of a worker."""

Number = tuple[int, int]
"""A `GloballyUniqueId`, or the plain pair equal to one, as which it is sent."""


class GloballyUniqueId(NamedTuple):
    """A number that is unique among all workers."""

    created_on: int
    local_id: int

    @property
    def creator(self) -> Holder:
        """The worker that has assigned it."""
        return self.created_on, self.local_id >> _INCARNATION_BITS

    @property
    def pair(self) -> Number:
        """The number as a plain pair, as it is sent."""
        return self.created_on, self.local_id

    def __repr__(self) -> str:
        return f"GloballyUniqueId(created_on={self.created_on}, local_id={self.local_id})"


class OwnedValue:
    """A value that this worker owns, which may not be computed yet, and the workers that have forks of it."""

    __slots__ = ("__weakref__", "created", "forks", "id", "value")

    def __init__(self, number: GloballyUniqueId) -> None:
        self.id = number
        self.value: Future[Result] = Future()
        self.created = False  # whether the creator's request has arrived; a fork may be known earlier
        self.forks: dict[Number, Holder] = {}


class References:
    """The reference counts of one worker."""

    def __init__(self, me: Holder) -> None:
        self._me, incarnation = me
        self._numbers = count(incarnation << _INCARNATION_BITS)
        self._lock = threading.Lock()  # nothing may be freed while it is held, since finalizers run any code
        self._no_parents = threading.Condition(self._lock)
        # Weak, as a reference of the owner keeps its value by itself; only what others need is in `_kept`.
        self._owned: WeakValueDictionary[Number, OwnedValue] = WeakValueDictionary()
        self._kept: dict[Number, OwnedValue] = {}  # values with forks, and values that are not created yet
        self._parents: dict[
            Number, tuple[object, Holder]
        ] = {}  # by child: the reference that is kept, and the child's holder

    def number(self) -> GloballyUniqueId:
        """A new number."""
        return GloballyUniqueId(self._me, next(self._numbers))

    # --- for the owner ---

    def owned(self, number: Number) -> OwnedValue:
        """The value with a number; it may not be created yet."""
        with self._lock:
            return self._get(number)

    def create(self, number: Number) -> OwnedValue:
        """The value with a number, whose creator's request has arrived. From now on, forks and references keep it."""
        with self._lock:
            owned = self._get(number)
            owned.created = True
            self._release_if_unused(owned)
            return owned

    def add_fork(self, number: Number, fork: Number, holder: Holder) -> OwnedValue:
        """Record that a worker has a fork."""
        with self._lock:
            owned = self._get(number)
            owned.forks[fork] = holder
            self._kept[number] = owned
            return owned

    def delete_fork(self, number: Number, fork: Number) -> None:
        """Record that a fork is deleted; repeated calls have no effect."""
        with self._lock:
            owned = self._owned.get(number)
            if owned is not None:
                owned.forks.pop(fork, None)
                self._release_if_unused(owned)
        # After the lock is released, since freeing the value runs any code.
        del owned

    def _get(self, number: Number) -> OwnedValue:
        owned = self._owned.get(number)
        if owned is None:
            # A fork of another user may be known before the creator's request arrives. The value is kept until then, as
            # nothing else refers to it.
            owned = self._owned[number] = self._kept[number] = OwnedValue(GloballyUniqueId(*number))
        return owned

    def _release_if_unused(self, owned: OwnedValue) -> None:
        if owned.created and not owned.forks:
            self._kept.pop(owned.id, None)

    # --- for users ---

    def keep_parent(self, child: Number, parent: object, holder: Holder) -> None:
        """Keep a reference that was sent to a worker, until `child_known` is called."""
        with self._lock:
            self._parents[child] = parent, holder

    def child_known(self, child: Number) -> None:
        """Record that the owner knows of a child."""
        with self._lock:
            kept = self._parents.pop(child, None)
            self._no_parents.notify_all()
        del kept  # after the lock is released, since it may be the last reference

    def wait_for_children(self, seconds: float | None) -> None:
        """Wait until the owners know of all references that were sent, at most this many seconds."""
        with self._lock:
            self._no_parents.wait_for(lambda: not self._parents, seconds)

    # --- failures and statistics ---

    def lost(self, worker: Holder) -> None:
        """Handle the end of a worker, of all its forks, and of the values that it was to create."""
        with self._lock:
            kept = list(self._kept.values())
            orphans = [owned for owned in kept if owned.id.creator == worker and not owned.created]
            for owned in kept:
                for fork in [fork for fork, holder in owned.forks.items() if holder == worker]:
                    del owned.forks[fork]
                # Requests of the lost worker cannot arrive any more; its values count as created, so that they go with
                # their last fork.
                owned.created = owned.created or owned in orphans
                self._release_if_unused(owned)
            freed = [self._parents.pop(child) for child, (_, holder) in list(self._parents.items()) if holder == worker]
            self._no_parents.notify_all()
        # Outside of the lock, as callbacks of the futures are users' code.
        for owned in orphans:
            owned.value.set_exception(
                RpcError(f"worker {worker[0]} was lost before it created the value of {owned.id}")
            )
        del kept, freed

    def figures(self) -> dict[str, int]:
        """The numbers of values kept for others, of their forks, and of parents that wait."""
        with self._lock:
            return {
                "num_owner_rrefs": len(self._owned),
                "num_forks": sum(len(owned.forks) for owned in self._kept.values()),
                "num_parent_rrefs": len(self._parents),
            }
