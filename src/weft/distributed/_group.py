"""Process groups: a `ProcessGroup` runs operations in order, knows ranks in the job, and writes results into tensors.

Its backend (`_group_backend.py`) moves arrays, and knows only ranks of its group.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any, Self, TypeAlias, TypeVar

from weft._base.activity import COLLECTIVES, process, waiting
from weft._base.capture import active_capture
from weft._base.failing import before_leaving
from weft._base.flight import Flight
from weft._base.interrupts import uninterrupted
from weft._base.site import ends_at_user, user_site
from weft._base.timeline import Listeners, Phase, exchanging, span, spanned
from weft._base.types import Arg
from weft._comm.stores.store import Store
from weft._lazy.aval import Aval, in_memory
from weft._lazy.external import taken_in
from weft._lazy.reading import array_of
from weft._lazy.replicated import replication
from weft._lazy.value import Value
from weft._tensor.dim_names import take_names
from weft._tensor.tensor import Tensor
from weft._tensor.view import replace_value
from weft.distributed._debug_level import DebugLevel, get_debug_level
from weft.distributed._group_backend import GroupBackend
from weft.distributed._group_collectives import GroupCollectives
from weft.distributed._group_user import UserBackend
from weft.distributed._messages import Array, CompleteMessage, FollowedMessage, Message
from weft.distributed._monitored import pass_barrier
from weft.distributed._observers import note_collective
from weft.distributed._work import MessageWork, OrderedExecutor, Work, completed
from weft.errors import ValueRangeError
from weft.ops._jax import block_until_ready

R = TypeVar("R")


Collective: TypeAlias = Callable[[Sequence[Array]], Sequence[Array]]
"""What a collective does with this rank's arrays; returns the arrays of its results."""

_Call: TypeAlias = tuple[str, Collective, Sequence[Tensor], Sequence[Tensor]]


class _BlockState(threading.local):
    """A thread's settings for collectives.

    calls    the calls collected by a coalescing block; None outside of one
    timeout  the timeout; None means that of the group
    """

    calls: list[_Call] | None = None
    timeout: timedelta | None = None


def _operation_of(_: object, operation: str, *__: object, **___: object) -> str:
    return operation


class ProcessGroup(GroupCollectives):
    """Ranks that work together: `ranks[i]` is the rank in the job of the group's rank `i`.

    A subclass with methods of its own (`allreduce`, `broadcast`, …) calls `super().__init__(rank, size)`, or with a
    store before both. The collectives of `weft.distributed` then call these methods.
    """

    def __init__(self, *store_rank_and_size: Arg) -> None:
        *stores, rank, size = store_rank_and_size
        self._attach("", UserBackend(self, rank, size), range(size), stores[0] if stores else None)

    @classmethod
    def over(
        cls,
        name: str,
        backend: GroupBackend,
        ranks: Sequence[int],
        store: Store | None,
        before: ProcessGroup | None = None,
    ) -> ProcessGroup:
        """A group over a backend, or the user's object that it belongs to. `before` is the job's group."""
        own = backend.group if isinstance(backend, UserBackend) else None
        group = own if isinstance(own, ProcessGroup) else cls.__new__(cls)
        return group._attach(name, backend, ranks, store, before)

    def _attach(
        self,
        name: str,
        backend: GroupBackend,
        ranks: Sequence[int],
        store: Store | None,
        before: ProcessGroup | None = None,
    ) -> Self:
        self.group_name = name
        self.group_desc = "undefined"
        self.ranks = tuple(ranks)
        self.store = store
        self._unwaited: deque[Work] = deque()
        self._left = False
        self.requested_name: str | None = (
            None  # what the backend was called when it was requested, if that is not its name
        )
        self.enter: Callable[[], None] = lambda: None  # called by a thread that works for this rank
        self.own_backend = backend
        self._shared: OrderedExecutor | None = before._executor if before is not None and backend.one_order else None
        self._executor = self._shared or OrderedExecutor(name, lambda: self.enter())
        backend.in_order = self._executor.run
        self._messages: deque[Message] = deque()  # sent or received without a caller waiting at once
        self._message_executor = OrderedExecutor(f"{name}, messages")
        self._block = _BlockState()
        self._checks = get_debug_level() is DebugLevel.DETAIL
        return self

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.group_name!r}: rank {self.rank()} of {self.size()} ({self.own_backend.name})>"

    def rank(self) -> int:
        """This process's rank in the group."""
        return self.own_backend.rank

    def size(self) -> int:
        """The number of ranks of the group."""
        return self.own_backend.size

    def name(self) -> str:
        """The name under which the backend was requested: `gloo` even if that stands for another one."""
        requested = self.requested_name
        return self.own_backend.name if requested is None or ":" in requested else requested

    def get_group_store(self) -> Store | None:
        """The store by which the group was created."""
        return self.store

    @property
    def crowded(self) -> bool:
        """Whether this host has so few cores for the ranks that overlapping exchange with computation is slower."""
        return self.own_backend.crowded

    @property
    def records(self) -> bool:
        """Whether its ranks run recorded programs together, so that collectives can be operators of these."""
        job = replication()
        return job is not None and self.own_backend.mesh == job.mesh

    @property
    def timeout(self) -> timedelta:
        """How long an operation may wait for its peers."""
        return self.own_backend.timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Set how long operations may wait for their peers; it should be equal on all ranks."""
        self.own_backend.timeout = timeout

    def abort(self, reason: str = "") -> None:
        """Make operations that wait for peers fail, on all ranks; the group cannot be used after it."""
        text = f"rank {self.ranks[self.rank()]} has aborted the group {self.group_name!r}"
        self.own_backend.abort(f"{text}: {reason}" if reason else text)

    def await_ranks(self, operation: str) -> None:
        """Wait until all ranks have called this for the same `operation`; if they differ, all ranks raise."""
        self._barrier(operation, lambda: self.own_backend.barrier(operation=operation))

    def await_ranks_monitored(self, timeout: timedelta | None, *, wait_all_ranks: bool) -> None:
        """Wait until all ranks have called this; the error of the first rank names the missing ones."""
        self._barrier(
            "monitored_barrier",
            lambda: pass_barrier(self.own_backend, self.ranks, timeout, wait_all_ranks=wait_all_ranks),
        )

    def _followed(self, operation: str, types: Sequence[Aval], call: Callable[..., R]) -> Callable[..., R]:
        """`call`, of which the flight recorder keeps when it was called, when it has run, and how it has ended.

        Profiles are told the same.
        """
        if Flight.recorder is not None:
            call = Flight.recorder.collective(operation, self.group_name, self.ranks, types, user_site(), call)
        if Listeners.of_exchanges:
            call = exchanging(f"{self.name()}:{operation}", [aval.size for aval in types], call)
        return call

    @ends_at_user
    def _barrier(self, operation: str, wait: Callable[[], None]) -> None:
        _end_capture()
        wait = self._followed(operation, (), wait)
        with uninterrupted, waiting(COLLECTIVES, operation), span(Phase.COLLECTIVE, operation):
            self._executor.run(wait)
        if self._unwaited:
            self._deliver()

    def rank_in_group(self, rank: int) -> int:
        """The rank in the group of a rank of the job; `ValueError` if it is not a member."""
        try:
            return self.ranks.index(rank)
        except ValueError:
            raise ValueRangeError(
                f"Global rank {rank} is not part of group {self.group_name!r}, which has the ranks {list(self.ranks)}"
            ) from None

    @ends_at_user
    @spanned(Phase.COLLECTIVE, _operation_of)
    def run(
        self,
        operation: str,
        call: Collective,
        inputs: Sequence[Tensor],
        results: Sequence[Tensor],
        *,
        async_op: bool,
    ) -> Work | None:
        """Call `call` with the arrays of `inputs`, and write the arrays that it returns into `results`.

        With `async_op` this returns at once: the group's own thread waits for the arrays and calls `call`. Of tensors
        on the meta device, which have no elements, nothing is exchanged, as in PyTorch. In a function that is captured,
        the call is deferred, and `call` must keep no tensors.
        """
        give_names(inputs, results)
        if _have_no_data(inputs, results):
            note_collective(operation, inputs)
            return completed(operation, results) if async_op else None
        block = self._block
        if block.calls is not None:
            block.calls.append((operation, call, inputs, results))
            return None
        note_collective(operation, inputs)
        if self._checks or block.timeout is not None:
            call = self._guarded(operation, call, block.timeout)
        types = [tensor._read().aval for tensor in inputs or results]
        if self.is_captured:
            self._defer(partial(self._repeat, operation, call, types), inputs, results)
            return completed(operation, list(results)) if async_op else None
        values = [tensor._read() for tensor in inputs]
        if not async_op:
            self._exchange(operation, call, types, values, lambda outputs: put(results, outputs))
            return None
        call = self._followed(operation, types, call)
        arrays = self._arrays_of(values)
        work = Work(operation, lambda outputs: put(results, outputs))
        self._executor.submit(lambda: call(arrays), work.arrived)
        self._unwaited.append(work)
        # Works that were waited for leave from the front; a loop that waits for each would otherwise collect all of
        # them.
        while self._unwaited[0].delivered and len(self._unwaited) > 1:
            self._unwaited.popleft()
        return work

    def _exchange(
        self,
        operation: str,
        call: Collective,
        types: Sequence[Aval],
        values: Sequence[Value],
        deliver: Callable[[Sequence[Array]], R],
    ) -> R:
        """Call `call` with the arrays of values, and `deliver` with what it returns; observers are told `types`.

        A rank that leaves in the middle would break the group for all. So a signal waits until the results are there,
        unless other ranks keep this one waiting.
        """
        call = self._followed(operation, types, call)
        arrays = self._arrays_of(values)
        with uninterrupted:
            outputs = self._waited(operation, lambda: call(arrays), arrays)
            # Results that nobody waits for arrive with the next operation, in the order of the calls.
            if self._unwaited:
                self._deliver()
            return deliver(outputs)

    @ends_at_user
    @spanned(Phase.COLLECTIVE, _operation_of)
    def _repeat(
        self, operation: str, call: Collective, types: Sequence[Aval], values: Sequence[Value]
    ) -> Sequence[Array]:
        """What `run` does, for a captured function: the arrays of the results."""
        return self._exchange(operation, call, types, values, lambda outputs: outputs)

    @property
    def is_captured(self) -> bool:
        """Whether a function is captured whose replays can make the group's calls again."""
        return active_capture().defers and self.own_backend.on_host

    def _defer(
        self,
        function: Callable[[Sequence[Value]], Sequence[Array]],
        inputs: Sequence[Tensor],
        results: Sequence[Tensor],
    ) -> None:
        """Leave a call to the captured function and its replays, which are valid until this group is destroyed."""
        capture: Any = active_capture()  # that of a function, which defers
        capture.depends(self, "a process group", lambda: self._left)
        avals = [in_memory(tensor._read().aval, False) for tensor in results]
        outputs = capture.defer(function, [taken_in(tensor._read()) for tensor in inputs], avals)
        for tensor, value in zip(results, outputs, strict=True):
            replace_value(tensor, value)

    def _waited(self, operation: str, call: Callable[[], Sequence[Array]], arrays: Sequence[Array]) -> Sequence[Array]:
        """Run a call, and note that this thread waits. The computation of its own arrays is no wait for other ranks."""
        if process.activity is None:
            return self._executor.run(call)
        # The arrays are computed first, so that only the time with other ranks is told as waiting.
        if self.own_backend.on_host:
            block_until_ready(arrays)
        with waiting(COLLECTIVES, operation):
            return self._executor.run(call)

    def _guarded(self, operation: str, call: Collective, timeout: timedelta | None) -> Collective:
        """`call` with its own timeout and, at the debug level `DETAIL`, after a barrier."""

        def guarded(arrays: Sequence[Array]) -> Sequence[Array]:
            with self.own_backend.within(timeout):
                if self._checks:
                    pass_barrier(self.own_backend, self.ranks, timeout, operation=operation)
                return call(arrays)

        return guarded

    @contextmanager
    def within(self, timeout: timedelta | None) -> Generator[None]:
        """Set the timeout of collectives that this thread starts within the block; None means that of the group."""
        before, self._block.timeout = self._block.timeout, timeout
        try:
            yield
        finally:
            self._block.timeout = before

    def _deliver(self) -> None:
        """Write the results of earlier operations for which no caller has waited."""
        for _ in range(len(self._unwaited)):
            work = self._unwaited.popleft()
            if not work.is_completed():  # this may run within the executor
                self._unwaited.append(work)
                continue
            work.log_unobserved()
            if work.is_success():
                work.wait()

    @contextmanager
    def coalescing(self) -> Generator[list[_Call]]:
        """Collect this thread's calls of `run` within the block, for `run_all`; `ValueError` if blocks are nested."""
        if self._block.calls is not None:
            raise ValueRangeError(
                "collectives of this group are being coalesced already; blocks cannot stand in each other"
            )
        calls = self._block.calls = []
        try:
            yield calls
        finally:
            self._block.calls = None

    def run_all(self, calls: Sequence[_Call], *, async_op: bool) -> Work | None:
        """Run the collected calls, in order, as one operation."""
        inputs = [tensor for _, _, tensors, _ in calls for tensor in tensors]
        results = [tensor for _, _, _, tensors in calls for tensor in tensors]

        # Of the calls only functions and counts are kept.
        parts = [(one, len(tensors)) for _, one, tensors, _ in calls]  # a captured call must keep no tensors

        def call(arrays: Sequence[Array]) -> list[Array]:
            left = iter(arrays)
            return [array for one, count in parts for array in one(list(islice(left, count)))]

        operations = {operation for operation, *_ in calls}
        name = f"{operations.pop()}_coalesced" if len(operations) == 1 else "coalesced collectives"
        return self.run(name, call, inputs, results, async_op=async_op) if calls else None

    def start_send(self, tensor: Tensor, peer: int, tag: int) -> MessageWork:
        """Start to send to a rank of the group."""
        # Without elements there is nothing to send, as in PyTorch; the peer's tensor is on the meta device, too.
        if tensor.is_meta:
            return MessageWork(CompleteMessage((), peer), lambda _: [], self.ranks)
        message = self.own_backend.send(self._arrays_of([tensor._read()])[0], peer, tag)
        return self._message_work("send", f"send to rank {self.ranks[peer]}", tensor, message, [])

    def start_receive(self, tensor: Tensor, peer: int | None, tag: int) -> MessageWork:
        """Start to receive from a rank of the group, or from any (None)."""
        if tensor.is_meta:
            return MessageWork(CompleteMessage((), peer or 0), lambda _: [tensor], self.ranks)
        message = self.own_backend.receive(self._arrays_of([tensor._read()])[0], peer, tag)
        operation, sender = ("recvAnySource", "any rank") if peer is None else ("recv", f"rank {self.ranks[peer]}")
        return self._message_work(operation, f"receive from {sender}", tensor, message, [tensor])

    def _arrays_of(self, values: Sequence[Value]) -> Sequence[Array]:
        """The arrays of values, computed by one program; the computation may still be running."""
        _end_capture()
        # Host groups take NumPy's memory as it is: arrays of jax in and out were most of the 87 µs of an all_reduce of
        # 8 bytes, which takes 12 now.
        return list(map(Value.read if self.own_backend.on_host else array_of, values))

    def _message_work(
        self, operation: str, text: str, tensor: Tensor, message: Message, results: list[Tensor]
    ) -> MessageWork:
        """The work of a message that the flight recorder and profiles follow, as `_followed` does for collectives."""
        if Flight.recorder is not None and not message.done:
            types, site = [tensor._read().aval], user_site()
            wait = Flight.recorder.message(text, self.group_name, self.ranks, types, site, message.wait)
            message = FollowedMessage(message, wait)
        if Listeners.of_exchanges:
            message = FollowedMessage(message, exchanging(f"{self.name()}:{operation}", [tensor.shape], message.wait))
        work = MessageWork(message, lambda outputs: put(results, outputs), self.ranks)
        if not message.done:  # a thread completes it if no caller waits for it
            while self._messages and self._messages[0].done:
                self._messages.popleft()
            self._messages.append(message)
            self._message_executor.submit(message.wait)
        return work

    def close(self) -> None:
        """Leave the group. Operations that wait for peers fail; those that have not started are cancelled."""
        self._left = True
        before_leaving()
        for work in self._unwaited:
            work.log_unobserved()
        lines = (self._executor, self._message_executor)
        # that thread may still have to look at messages which are done
        if self._executor.busy or any(not message.done for message in self._messages):
            self.own_backend.abort(f"rank {self.ranks[self.rank()]} has destroyed the group {self.group_name!r}")
        # The executor is that of the job's group, and goes on after this group.
        if self._shared is not None:
            self._executor.run(lambda: None)  # waits for running operations
        if all(line.close(_GRACE_SECONDS) for line in lines if line is not self._shared):
            self.own_backend.close()


_GRACE_SECONDS = 5.0


def _end_capture() -> None:
    """Report to the active capture what is exchanged at once, and not by its replays."""
    active_capture().needs_value("other ranks, by a collective,")


def _have_no_data(inputs: Sequence[Tensor], results: Sequence[Tensor]) -> bool:
    """Whether all tensors are on the meta device."""
    first = next(iter(inputs or results), None)
    return first is not None and first.is_meta and all(x.is_meta for x in (*inputs, *results))


def give_names(inputs: Sequence[Tensor], results: Sequence[Tensor]) -> None:
    """Give results without names those of this rank's inputs, if these agree; a result may have one more dim."""
    distinct = {names for tensor in inputs if (names := tensor._read().aval.names) is not None}
    if len(distinct) != 1:
        return
    (names,) = distinct
    for result in results:
        if result.ndim == len(names):
            take_names(result, names)
        elif result.ndim == len(names) + 1:
            take_names(result, (None, *names))


def put(tensors: Sequence[Tensor], arrays: Sequence[Array]) -> list[Tensor]:
    """Write arrays into tensors, and so into their aliases, outside the tape."""
    for tensor, array in zip(tensors, arrays, strict=True):
        replace_value(tensor, Value(in_memory(tensor._read().aval, False), array))
    return list(tensors)
