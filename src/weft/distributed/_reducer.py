"""Averages the gradients of replicas, in buckets, during the backward pass.

Ranks send buckets in the order of their numbers, whichever is ready first, so that they agree on the order. When the
last gradient of a bucket is recorded, its computation is started. The group's thread waits for it and exchanges the
bucket, while this thread continues to record.

Where the ranks run recorded programs together, nothing is exchanged: the averages are recorded, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from weft._autograd.engine import queue_callback
from weft._base.capture import active_capture
from weft._base.interrupts import uninterrupted
from weft._base.state import using
from weft._base.types import Arg, Result
from weft._lazy.aval import in_memory
from weft._lazy.flushing import flush_pending
from weft._lazy.role import Interior
from weft._lazy.value import Value, inputs_first
from weft._tensor.codegen import op as rows
from weft._tensor.composite.create import zeros
from weft._tensor.convert import tensor
from weft._tensor.tensor import Tensor, wrap
from weft.distributed import _collectives
from weft.distributed import _recorded as recorded
from weft.distributed._bucket import buckets_of
from weft.distributed._grad_bucket import GradBucket, Hook, flat_result, require_future, split_like
from weft.distributed._group import ProcessGroup
from weft.distributed._reduce_op import ReduceOp
from weft.distributed._unused import explaining, refuse_unused
from weft.errors import GradientError, OptionError
from weft.futures import Future

Error = TypeVar("Error", bound=Exception)

MEGABYTE = 1 << 20
_NAME = "whether a DistributedDataParallel averages gradients"

Averages = Callable[[], list[Tensor]]
"""Waits for the averages of a bucket."""


@dataclass
class _Pass:
    """A backward pass that averages gradients.

    missing      how many gradients each bucket still waits for
    runs         whether its end is still to come
    ready        the numbers of gradients that it has added to parameters, in the order in which they were ready
    exchanges    the averages of the buckets that have been sent, in order: first those of bucket 0
    """

    missing: list[int]
    runs: bool = True
    ready: Counter[int] = field(default_factory=Counter[int])
    exchanges: list[Averages] = field(default_factory=list["Averages"])


class Reducer:
    """Averages the gradients of `parameters` over a group.

    `limits` are the limits of buckets in bytes. With `find_unused`, parameters that do not take part in a backward pass
    count as ready; if no rank has used them, they keep their gradients. After `become_static`, the parameters that are
    unused in the first pass are expected to be unused in all later ones. With `in_buckets`, gradients have no memory of
    their own while they are exchanged.

    overlaps  whether buckets are sent during the backward pass, or at its end
    leader    the rank in the group whose order of parameters is used
    divisor   the divisor of sums, if it is not the size of the group
    uneven    whether ranks may have no data left
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        names: Sequence[str],
        group: ProcessGroup,
        limits: Sequence[int],
        *,
        find_unused: bool,
        in_buckets: bool,
    ) -> None:
        self.parameters = list(parameters)
        self.names = list(names)
        self.group = group
        self.limits = limits
        self.find_unused = find_unused
        self.static = False
        self.in_buckets = in_buckets
        self.overlaps = not group.crowded
        self.leader = 0
        self.divisor: int | None = None
        self.uneven = False
        self.hook: Hook | None = None
        self.hook_state: Arg = None
        self._avals = [in_memory(p._read().aval, False) for p in self.parameters]
        self.sizes = [aval.nbytes for aval in self._avals]
        self._all = frozenset(range(len(self.parameters)))
        # Parameters whose averages are used, or None: those with a gradient on any rank, which a pass finds out.
        self._used = None if find_unused else self._all
        self._order = list(reversed(range(len(self.parameters))))
        self._order_agreed = self._rebuilt = False
        self._plan()
        self._first_sizes = self._bucket_sizes()
        self.iterations = 0  # number of forward passes before passes that average
        self._syncs = False  # whether backward passes average gradients
        self._has_averaged = False  # whether one has begun to since the last forward pass with `sync`
        self._pass = _Pass([], runs=False)  # the last backward pass
        self._ended: _Pass | None = None  # the last one whose gradients were all there
        self._same_unused = True  # whether all of these had the same unused parameters
        self._with_gradient: set[int] = set()  # parameters with a gradient that is not averaged yet
        self._grad_counts: list[int] | None = [1] * len(self.parameters)  # that a pass adds to each; None: not known
        self._error: str | None = None
        for at, parameter in enumerate(self.parameters):
            parameter.register_post_accumulate_grad_hook(partial(self._ready, at))

    @property
    def records(self) -> bool:
        """Whether averages are operators of the recorded program.

        They are not where a value is needed to know which gradients there are, or where a hook exchanges them.
        """
        return self.group.records and self.needs_no_value

    @property
    def is_captured(self) -> bool:
        """Whether averages are a part of the function that is captured, as operators or as calls that replays make."""
        return (self.group.records or self.group.is_captured) and self.needs_no_value

    @property
    def needs_no_value(self) -> bool:
        """Whether it is known without reading a value which gradients there are, and Weft exchanges them."""
        return self._used is not None and self.hook is None and not self.uneven

    def become_static(self) -> None:
        """Assume that all backward passes are like the first; `RuntimeError` after the first forward pass."""
        if self.iterations:
            raise self._recorded(
                OptionError(
                    "set_static_graph() should be called before training loop starts and after DistributedDataParallel "
                    "is constructed."
                )
            )
        self.static, self._used, self._grad_counts = True, None, None

    def _plan(self) -> None:
        ordered = [self._avals[at] for at in self._order]
        kinds = [(aval.dtype, aval.device) for aval in ordered]
        self.buckets = [
            [self._order[i] for i in bucket] for bucket in buckets_of([a.nbytes for a in ordered], kinds, self.limits)
        ]
        self._bucket_of = {at: number for number, bucket in enumerate(self.buckets) for at in bucket}

    def require_unchanged(self) -> None:
        """`RuntimeError` if a parameter's type, shape or device has changed since buckets were planned."""
        for name, parameter, aval in zip(self.names, self.parameters, self._avals, strict=True):
            now = in_memory(parameter._read().aval, False)
            if now is not aval:
                raise self._recorded(
                    OptionError(
                        f"the parameter {name} was {aval!r} on {aval.device} when DistributedDataParallel was made, "
                        f"and is {now!r} on {now.device} now; move or cast a module before it is wrapped"
                    )
                )

    # --- order ------------------------------------------------------------------------------------------------

    def agree_on_order(self, outputs: Sequence[Value]) -> None:
        """Before the first backward pass, sort parameters by the order in which it will make their gradients ready.

        So the first pass has the same buckets as all later ones, and a run resumed from a checkpoint computes the same
        bits as one that was never stopped.
        """
        if self._order_agreed or self.find_unused or self.is_captured:
            return  # a function that is captured on all ranks keeps the order that it has
        numbers = {p._read(): at for at, p in enumerate(self.parameters)}
        last: dict[int, tuple[int, int]] = {}  # the use of each parameter that the pass reaches last
        for output in outputs:
            for value in inputs_first(output, _inside_tape, _inside_tape):
                for place, x in enumerate(value.inputs):
                    at = numbers.get(x)
                    if at is not None:
                        last[at] = max(last.get(at, (-value.time, place)), (-value.time, place))
        self._agree_on_order(sorted(last, key=last.__getitem__))

    def _agree_on_order(self, first: Iterable[int]) -> None:
        """Use the leader's order: the parameters `first`, then the others."""
        order = tensor(list(dict.fromkeys([*first, *self._order])), device=self._avals[0].device)
        _collectives.broadcast(order, group=self.group, group_src=self.leader)
        self._order = order.tolist()
        self._order_agreed = True
        self._plan()

    # --- one backward pass ------------------------------------------------------------------------------------

    def expect(self, *, sync: bool) -> None:
        """Called after a forward pass; backward passes average gradients from now on if `sync`.

        A forward pass without `sync` does not cancel what an earlier one has requested, before a backward pass has done
        it.
        """
        capture = active_capture()
        if not sync:
            capture.depends(self, _NAME, self._requests)
        capture.depends(self, _NAME, lambda: (self.needs_no_value, self._order))
        capture.repeats(partial(self.expect, sync=sync))
        self._pass.runs = False
        # Else a forward pass for validation would lose the request of one whose `backward()` is still to come.
        if sync or self._has_averaged:
            self._syncs, self._has_averaged = sync, False
        self.iterations += sync

    def _requests(self) -> tuple[bool, list[int], bool, bool]:
        """What a pass and a forward pass without `sync` depend on."""
        return self.needs_no_value, self._order, self._syncs, self._has_averaged

    def _ready(self, at: int, _: object = None) -> None:
        """The gradient of a parameter is ready."""
        active_capture().depends(self, _NAME, self._requests)
        self._with_gradient.add(at)
        if not self._syncs:
            return
        if not self._pass.runs:
            self._begin()
            # The hook on the last gradient cannot know that it is the last.
            queue_callback(self._finish)
        self._pass.ready[at] += 1
        if self._grad_counts is None:
            return
        # Its bucket may have been sent with the first gradient alone.
        if not self.static and self._pass.ready[at] > 1:
            raise self._recorded(
                GradientError(
                    f"Expected to mark a variable ready only once. The parameter {self.names[at]} got a gradient twice "
                    "in one backward pass, as happens where derivatives run backward passes of their own; pass "
                    "static_graph=True to DistributedDataParallel"
                )
            )
        self._pass.missing[self._bucket_of[at]] -= 1
        if self.overlaps:
            self._start_complete()

    def _begin(self) -> None:
        self._note_pass()
        active_capture().repeats(self._note_pass)
        counts = self._grad_counts
        self._pass = _Pass([] if counts is None else [sum(counts[at] for at in bucket) for bucket in self.buckets])

    def _note_pass(self) -> None:
        self._has_averaged = True

    def _start_complete(self) -> None:
        """Send the complete buckets, in order."""
        # In order: ranks whose buckets become ready in different orders would average different ones with each other.
        for number in range(len(self._pass.exchanges), len(self.buckets)):
            if self._pass.missing[number] > 0:
                return
            self._start(number)

    def _start(self, number: int) -> None:
        # From here on the other ranks count on this one: until the averages are there, and the step has used them.
        uninterrupted.extend()
        active_capture().repeats(uninterrupted.extend)
        parameters = [self.parameters[at] for at in self.buckets[number]]
        with using(grad=False):
            self._send(number, [_zeros_like(p) if p.grad is None else p.grad for p in parameters])

    def _send(self, number: int, grads: list[Tensor]) -> None:
        if self.hook is not None:
            averages = self._call_hook(self.hook, number, grads)
        else:
            averages = self._record(grads) if self.records else self._average(grads)
        self._pass.exchanges.append(averages)

    def _record(self, grads: list[Tensor]) -> Averages:
        """Record the averages: one operator for the bucket, as each one costs a message."""
        flat = rows.cat([rows.reshape(grad, (-1,)) for grad in grads])
        averaged = split_like(recorded.all_reduce(flat, ReduceOp.AVG), grads)
        return lambda: averaged

    def _average(self, grads: list[Tensor]) -> Averages:
        """Start the exchange of gradients one by one; concatenating them would copy them twice."""
        averaged, divisor = [wrap(grad._read()) for grad in grads], self.divisor
        operation = ReduceOp.AVG if divisor is None else ReduceOp.SUM
        work = _collectives.start_all_reduce_coalesced(averaged, operation, self.group, async_op=self.overlaps)

        def averages() -> list[Tensor]:
            if work is not None:
                work.wait()
            return averaged if divisor is None else [grad / divisor for grad in averaged]

        return averages

    def _call_hook(self, hook: Hook, number: int, grads: list[Tensor]) -> Averages:
        parameters = [self.parameters[at] for at in self.buckets[number]]
        flat = rows.cat([rows.reshape(grad, (-1,)) for grad in grads])
        if self.in_buckets:  # a gradient that nobody holds is not computed separately
            for at in self._with_gradient.intersection(self.buckets[number]):
                self.parameters[at].grad = None
        bucket = GradBucket(number, flat, parameters, number == len(self.buckets) - 1)
        future = require_future(hook(self.hook_state, bucket))
        if not future.done():
            future = future.then(_flushed)
        return lambda: split_like(flat_result(future.wait(), bucket), parameters)

    def _finish(self) -> None:
        """After the backward pass: wait for the averages, and set them as gradients."""
        if self._ended is self._pass:
            return  # it began anew after a forward pass within it, such as one that is computed again
        self._pass.runs = False
        unused = self._all.difference(self._pass.ready)
        self._same_unused &= self._ended is None or self._all.difference(self._ended.ready) == unused
        self._ended = self._pass
        with self._explain_failures(), using(grad=False):
            if unused and not (self.find_unused or self.static):
                refuse_unused(self.group, self.names, sorted(unused), recorded=self.records)
            # The other ranks wait for every bucket, so those of unused parameters are sent with zeros.
            self._pass.missing = [0] * len(self.buckets)
            self._start_complete()
            self._end()
        if self.static:
            self._compare_with_first()

    def _end(self) -> None:
        """Set the averages of all buckets, which are sent, as gradients; then the first pass decides the order."""
        used = self._used_anywhere()
        for bucket, averages in zip(self.buckets, self._pass.exchanges, strict=True):
            for at, grad in zip(bucket, averages(), strict=True):
                if at in used:
                    self.parameters[at].grad = wrap(grad._read())  # a separate tensor, not a view
        self._pass.exchanges = []
        self._with_gradient.clear()
        if not (self._rebuilt or self.records or self.is_captured) and (self.static or not self.find_unused):
            self._agree_on_order(self._pass.ready)  # in the order in which they were ready on the leader
            self._rebuilt = True

    def shadow(self) -> None:
        """Take part in a backward pass of the other ranks with zeros, because this rank has no data left.

        It gets the averages, too, since it updates its part of an optimizer that is sharded over the ranks.
        """
        # Ranks with data agree on an order in their first pass, and wait for this one in it.
        self.agree_on_order(())
        self._begin()
        self._pass.runs = False
        self._with_gradient.clear()
        with using(grad=False):
            for number, bucket in enumerate(self.buckets):
                self._send(number, [_zeros_like(self.parameters[at]) for at in bucket])
            self._end()

    def _used_anywhere(self) -> frozenset[int]:
        """The parameters whose averages are used: all, unless unused ones are looked for."""
        if self._used is not None:
            return self._used
        # A parameter that no rank has used keeps its gradient, which this rank alone cannot know.
        flags = tensor(
            [float(at in self._with_gradient) for at in range(len(self.parameters))], device=self._avals[0].device
        )
        _collectives.all_reduce(flags, ReduceOp.MAX, self.group)
        used = frozenset(at for at, flag in enumerate(flags.tolist()) if flag)
        if self.static:
            self._used = used
        return used

    # --- for logs ---------------------------------------------------------------------------------------------

    def counts(self) -> dict[str, str | int]:
        """Statistics of the passes so far, under PyTorch's names; lists are given as texts."""
        counts: dict[str, str | int] = {
            "iteration": max(0, self.iterations - 1),
            "bucket_sizes": ", ".join(map(str, self._first_sizes)),
        }
        if self._ended is not None:
            counts |= {
                "has_rebuilt_buckets": int(self._rebuilt),
                "num_buckets_reduced": len(self.buckets),
                "prev_iteration_grad_ready_order_indices": ", ".join(map(str, self._ended.ready)),
                "unused_parameter_size": sum(self.sizes[at] for at in self._all.difference(self._ended.ready)),
            }
            if not self.static:
                counts["can_set_static_graph"] = int(self._same_unused)
        if self._rebuilt:
            counts["rebuilt_bucket_sizes"] = ", ".join(map(str, self._bucket_sizes()))
            counts["rebuilt_per_bucket_param_indices"] = ", ".join(" ".join(map(str, one)) for one in self.buckets)
        if self._error is not None:
            counts |= {"has_error": 1, "error": self._error}
        return counts

    def _bucket_sizes(self) -> list[int]:
        return [sum(self.sizes[at] for at in bucket) for bucket in self.buckets]

    def _recorded(self, error: Error) -> Error:
        """Note an error that is about to be raised; returns it."""
        self._error = str(error)
        return error

    # --- errors --------------------------------------------------------------------------------------

    @contextmanager
    def _explain_failures(self) -> Generator[None]:
        try:
            with explaining(self.group, self.names):
                yield
        except GradientError as error:
            self._recorded(error)
            raise

    def _compare_with_first(self) -> None:
        """Store the first pass's numbers of gradients; `RuntimeError` if a later pass differs from them."""
        counts = [self._pass.ready[at] for at in range(len(self.parameters))]
        if self._grad_counts is None:
            self._grad_counts = counts
        first = self._grad_counts
        changed = [at for at, count in enumerate(counts) if count != first[at]]
        if changed:
            words = (f"{self.names[at]} ({first[at]} before, {counts[at]} now)" for at in changed)
            raise self._recorded(
                GradientError(
                    "Your training graph has changed in this iteration, e.g., one parameter is unused in first "
                    "iteration, but then got used in the second iteration. this is not compatible with static_graph "
                    f"set to True. Parameters with another number of gradients: {', '.join(words)}"
                )
            )


def _inside_tape(value: Value) -> bool:
    return isinstance(value.role, Interior)


def _zeros_like(parameter: Tensor) -> Tensor:
    return zeros(parameter.shape, dtype=parameter.dtype, device=parameter.device)


def _flushed(done: Future[Result]) -> Result:
    """Compute what a hook has recorded in the group's thread, since no later call does it there."""
    result = done.value()
    flush_pending()
    return result
