"""Backward passes over several workers.

A backward pass consists of local passes, one on each worker. A local pass runs over the worker's tape, from the roots
or the tensors that the worker has sent, to its leaves and the tensors that it has received. Gradients of received
tensors are sent back to their senders, in one message for all that are complete at the same time. A message is answered
when all
all work that it has caused is done; so the pass is over when the first worker has its answers (Dijkstra and Scholten's
method). An answer also has the number of gradients that each worker still awaits.

In FAST mode all messages of the context take part; a gradient for a tensor on which the roots do not depend never
comes. In SMART mode a first round of messages, answered in the same way, marks the tensors on which the roots depend.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from time import perf_counter_ns
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from weft._autograd.graph import Vertex
from weft._autograd.incremental import IncrementalBackwardPass
from weft._autograd.sums import add_values
from weft._base.state import ambient
from weft._base.timeline import Listeners, Phase, spanned, tell
from weft._base.types import Arg, Result
from weft._lazy.flushing import flush_pending
from weft._lazy.role import Leaf
from weft._lazy.runtime import filled_array
from weft._lazy.value import Value, inputs_first
from weft._tensor.gradients import accumulate
from weft._tensor.tensor import Tensor, wrap
from weft.distributed.rpc._call import PendingCall
from weft.distributed.rpc._contexts import PassContext, origin_of, use_context
from weft.distributed.rpc._protocol import Reply, Request, request
from weft.distributed.rpc._workers import WorkerInfo
from weft.errors import ArgumentError, GradientError, WeftError
from weft.futures import collect_all, wait_all

if TYPE_CHECKING:
    from weft.distributed.rpc._agent import Agent

Awaited = dict[WorkerInfo, int]
"""For each worker, the number of gradients that it still awaits for tensors that it has sent."""


class DistributedPass(NamedTuple):
    """The identity of a backward pass: the worker that has started it and a number; and its options."""

    worker: int
    number: int
    retain_graph: bool
    smart: bool


_numbers = count()
# `.grad` belongs to the leaf and not to a context, so hooks of passes in two contexts would see each other's gradients.
_grad_lock = threading.Lock()
"""Held by the pass that has put a context's gradients into `.grad`."""


class _CollectedGradients:
    """Adds gradients of leaves to those of a context, without changing `.grad`.

    Post-accumulate hooks read `.grad`, and may change it, as those of DistributedDataParallel do. So, within `with`,
    `.grad` of leaves with such hooks is the context's gradient.
    """

    def __init__(self, context: PassContext) -> None:
        self._context = context
        self._hooked: set[Leaf] = set()
        self._own: dict[Leaf, Value | None] = {}  # the real `.grad` of leaves whose `.grad` is replaced

    def add(self, role: Leaf, grad: Value) -> None:
        """Add to the gradient of a leaf."""
        gradients = self._context.gradients
        # Only hooks can see `.grad`; leaves without them need neither the exchange nor the lock.
        if role.post_hooks:
            self._set_grad(role)
            accumulate(role, grad, create_graph=False)
        else:
            before = gradients.get(role)
            gradients[role] = grad if before is None else add_values(before, grad, ambient())

    def __enter__(self) -> None:
        for role in self._hooked:
            self._set_grad(role)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._own:
            for role, own in self._own.items():
                if role.grad is not None:
                    self._context.gradients[role] = role.grad._read()
                role.grad = own
            self._own = {}
            _grad_lock.release()

    def _set_grad(self, role: Leaf) -> None:
        if role in self._own:
            return
        if not self._own:
            _grad_lock.acquire()
        self._hooked.add(role)
        held = self._context.gradients.get(role)
        self._own[role], role.grad = role.grad, None if held is None else wrap(held)


class LocalPass:
    """One worker's part of a backward pass."""

    def __init__(
        self, context: PassContext, backward_pass: DistributedPass, roots: Sequence[tuple[Value, Value]] = ()
    ) -> None:
        self._context = context
        self._pass = backward_pass
        self._roots = roots
        self._marked: set[int] = set()
        self._marked_values: set[Value] = set()
        self._lock = threading.Lock()
        self._collected = _CollectedGradients(context)
        self._engine: IncrementalBackwardPass | None = None
        self._values: dict[int, Value] = {}  # sent tensors that take part
        self._complete: dict[WorkerInfo, dict[int, Tensor | None]] = {}  # gradients to be sent

    def mark(self, numbers: Iterable[int]) -> dict[WorkerInfo, list[int]]:
        """Mark sent tensors as taking part; returns the received ones that they or the roots depend on, by sender."""
        onward: dict[WorkerInfo, list[int]] = {}
        with self._lock:
            # Each tensor is followed once, however many paths lead to it.
            fresh = set(numbers) - self._marked
            self._marked |= fresh
            for start in [self._sent_value(number) for number in fresh] or [root for root, _ in self._roots]:
                values = inputs_first(start, self._is_unmarked, lambda value: origin_of(value) is None)
                self._marked_values.update(values)
                for value in values:
                    origin = origin_of(value)
                    if origin is not None:
                        onward.setdefault(origin.sender, []).append(origin.number)
        return onward

    def begin(self) -> dict[WorkerInfo, dict[int, Tensor | None]]:
        """Start at the roots; returns the gradients to send, by worker and number."""
        with self._lock:
            return self._advance({})

    @spanned(Phase.BLOCK, "SendRpcBackward")
    def add_gradients(self, grads: Mapping[int, Tensor | None]) -> dict[WorkerInfo, dict[int, Tensor | None]]:
        """Continue with the gradients of sent tensors; returns the gradients to send, by worker and number."""
        with self._lock:
            return self._advance(grads)

    @property
    def awaited(self) -> int:
        """The number of gradients that have not arrived."""
        return 0 if self._engine is None else self._engine.awaited

    def _is_unmarked(self, value: Value) -> bool:
        return value.role is not None and value not in self._marked_values

    def _sent_value(self, number: int) -> Value:
        sent = self._context.sends.get(number)
        if sent is None:
            raise GradientError(
                "Trying to backward through the graph a second time: this worker has given up what it needs for that. "
                "Specify retain_graph=True in the first pass if you need a second one"
            )
        return sent.value

    def _value_of(self, number: int) -> Value:
        return self._values.get(number) or self._sent_value(number)

    def _started_engine(self) -> IncrementalBackwardPass:
        if self._engine is None:
            # SMART passes wait for the marked tensors only; in FAST mode each tensor that was sent has to get a
            # gradient.
            numbers = list(self._marked if self._pass.smart else self._context.sends)
            self._values = {number: self._sent_value(number) for number in numbers}
            self._engine = IncrementalBackwardPass(
                [*(root for root, _ in self._roots), *self._values.values()],
                deliver=self._collected.add,
                ends=lambda value: origin_of(value) is not None,
                arrived_at=self._on_received,
                retain_graph=self._pass.retain_graph,
            )
            if not self._pass.smart:
                self._answer_unused(self._engine.reached.values())
        return self._engine

    def _answer_unused(self, reached: Iterable[Vertex]) -> None:
        """Send None for tensors that do not take part, but have arrived in one message with tensors that do."""
        used = [origin for origin in map(origin_of, reached) if origin is not None]
        # In FAST mode the sender waits for a gradient of each tensor that it has sent. One on which the roots do not
        # depend gets none, but its sender can be told so along with those of the same message that do.
        numbers = {(origin.sender, origin.number) for origin in used}
        for sender, message in {(origin.sender, origin.message) for origin in used}:
            for number in self._context.receipts.get((sender, message), ()):
                if (sender, number) not in numbers:
                    self._complete.setdefault(sender, {})[number] = None

    def _advance(self, grads: Mapping[int, Tensor | None]) -> dict[WorkerInfo, dict[int, Tensor | None]]:
        self._complete = {}
        engine = self._started_engine()
        arrived = [_on_device_of(self._value_of(at), grad) for at, grad in grads.items()]
        # Calls that hooks make are no part of the graph: recorded in the context, what they send would wait for
        # gradients.
        with use_context(None), self._collected, _as_gradient_errors(self._context.me):
            engine.give(arrived or self._roots)
        if not engine.awaited:
            self._context.passes.pop(self._pass, None)
            if not self._pass.retain_graph:
                for number in self._values:
                    self._context.sends.pop(number, None)
        return self._complete

    def _on_received(self, value: Vertex, grad: Value | None) -> None:
        if Listeners.all:
            tell(Phase.BLOCK, "RecvRpcBackward", perf_counter_ns())
        origin = origin_of(value)
        assert origin is not None, "the graph goes on elsewhere before received values alone"
        if origin.context_id != self._context.id:
            raise GradientError(
                f"a tensor on the way to the roots came from {origin.sender} in another context of distributed "
                "autograd; send it again in this one"
            )
        self._complete.setdefault(origin.sender, {})[origin.number] = None if grad is None else wrap(grad).cpu()


@contextmanager
def _as_gradient_errors(me: WorkerInfo) -> Generator[None]:
    """Raise exceptions of users' derivatives and hooks as errors that name this worker."""
    try:
        yield
    except WeftError:
        raise
    except Exception as error:
        raise GradientError(f"Error on Node {me.id}: {error}") from error


def _on_device_of(value: Value, grad: Tensor | None) -> tuple[Value, Value | None]:
    """A tensor, and its gradient on the tensor's device. Gradients are sent on the CPU, whatever the device maps."""
    return value, None if grad is None else grad.to(value.aval.device)._read()


@spanned(Phase.BLOCK, "torch::distributed::autograd::backward")
def run(agent: Agent, context_id: int, tensors: Sequence[Tensor], retain_graph: bool, smart: bool) -> None:
    """Run a backward pass from scalars of this worker until all workers are done. `RuntimeError` for bad roots."""
    context = agent.contexts.existing(context_id)
    if not tensors:
        raise GradientError("No tensors provided for gradient computation.")
    roots = [_root(tensor) for tensor in tensors]
    backward_pass = DistributedPass(agent.me.id, next(_numbers), retain_graph, smart)
    local_pass = context.passes[backward_pass] = LocalPass(context, backward_pass, roots)
    try:
        marks = (
            [call.flush() for call in _ask(agent, mark, context, backward_pass, local_pass.mark(()))] if smart else []
        )
        # Without sent tensors nobody's marks can add to the local graph: it begins while the others mark.
        if context.sends:  # other workers may mark some of them
            wait_all(marks)
        onward = local_pass.begin()
        # Starts the computation of this worker's part while the marks of others are still under way.
        flush_pending()
        wait_all(marks)
        calls = [call.flush() for call in _ask(agent, gradients, context, backward_pass, onward)]
        awaited = _minimum([*wait_all(calls), {agent.me: local_pass.awaited}])
    finally:
        context.passes.pop(backward_pass, None)
    missing = [f"{count} of {worker}" for worker, count in awaited.items() if count]
    if missing:
        raise GradientError(
            "FAST mode needs gradients for all tensors that were sent in the context, and none came for "
            f"{', '.join(missing)}: not all of them lead to the roots. Use mode='smart', or do not call what the roots "
            "do not need"
        )


def _root(tensor: object) -> tuple[Value, Value]:
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"backward(): roots must be tensors, but got {type(tensor).__name__}")
    if not tensor.requires_grad:
        raise GradientError("requires_grad not set on root")
    if tensor.numel() != 1:
        raise GradientError(
            f"a root of shape {list(tensor.shape)} is not a scalar, all roots need to be scalar; reduce it first"
        )
    if tensor.is_leaf:
        raise GradientError("a root that is a leaf does not have a valid gradient function.")
    value = tensor._read()
    return value, Value(value.aval, filled_array(value.aval, 1))


def _ask(
    agent: Agent,
    what: Request[int, DistributedPass, Arg],
    context: PassContext,
    backward_pass: DistributedPass,
    onward: Mapping[WorkerInfo, Arg],
) -> list[PendingCall]:
    """Call a control for a pass, once for each worker."""
    return [agent.ask(to, what, context.id, backward_pass, content) for to, content in onward.items()]


def _minimum(answers: Iterable[Awaited]) -> Awaited:
    """The smallest count for each worker; counts only decrease, so it is the latest."""
    least: Awaited = {}
    for answer in answers:
        for worker, left in answer.items():
            least[worker] = min(left, least.get(worker, left))
    return least


# --- controls -----------------------------------------------------------------------------


@request()
def mark(reply: Reply[Agent], context_id: int, backward_pass: DistributedPass, numbers: Sequence[int]) -> None:
    """Mark sent tensors as taking part in a pass; answered when all tensors on which they depend are marked."""
    context, local_pass = _local_pass(reply.agent, context_id, backward_pass)
    onward = local_pass.mark(numbers)
    _answer_after(reply, _ask(reply.agent, mark, context, backward_pass, onward), lambda _: None)


@request()
def gradients(
    reply: Reply[Agent], context_id: int, backward_pass: DistributedPass, grads: Mapping[int, Tensor | None]
) -> None:
    """Continue a pass; answered, with the counts of awaited gradients, when all work that this causes is done."""
    reply.run_in_turn(_advance, context_id, backward_pass, grads)


def _advance(
    reply: Reply[Agent], context_id: int, backward_pass: DistributedPass, grads: Mapping[int, Tensor | None]
) -> None:
    agent = reply.agent
    context, local_pass = _local_pass(agent, context_id, backward_pass)
    onward = local_pass.add_gradients(grads)
    mine: Awaited = {agent.me: local_pass.awaited}
    _answer_after(
        reply, _ask(agent, gradients, context, backward_pass, onward), lambda answers: _minimum([mine, *answers])
    )


def _local_pass(agent: Agent, context_id: int, backward_pass: DistributedPass) -> tuple[PassContext, LocalPass]:
    """A context, and this worker's local pass, which is created by the first message about it."""
    context = agent.contexts.existing(context_id)
    with context.lock:
        local_pass = context.passes.get(backward_pass)
        if local_pass is None:
            local_pass = context.passes[backward_pass] = LocalPass(context, backward_pass)
    return context, local_pass


def _answer_after(reply: Reply[Agent], calls: list[PendingCall], summed: Callable[[list[Result]], Result]) -> None:
    """Reply with `summed(answers)` once all calls are answered; does not block."""
    for call in calls:
        # The message must leave now: this thread does not wait for the answer, which the reply follows.
        call.push(now=True)
    if calls:
        reply.follow(collect_all(calls).then(lambda done: summed([call.value() for call in done.value()])))
    else:
        reply.send(summed([]))
