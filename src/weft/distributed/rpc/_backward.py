"""Backward passes over several workers.

Each worker has a part in a pass: its tape, from the roots or the tensors that it has sent, to its leaves and the
tensors that it has received. The gradients of those go to who sent them, all that are complete together. A message is
answered when all that it has set going is done, so the pass is over when the first worker has its answers (Dijkstra and
Scholten's method); an answer tells of which workers how many gradients are still awaited.

In FAST mode all messages of the context take part: those of whose tensors none leads to the roots are awaited in vain.
In SMART mode a first round of messages, answered in
the same way, marks those that lead to the roots.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from weft._autograd.graph import Vertex
from weft._autograd.incremental import IncrementalBackwardPass
from weft._lazy.realize import flush_pending
from weft._lazy.runtime import filled_array
from weft._lazy.value import Value, inputs_first
from weft._tensor.tensor import Tensor, wrap
from weft.distributed.rpc._call import Call
from weft.distributed.rpc._collected import Collected
from weft.distributed.rpc._contexts import Context, received, within
from weft.distributed.rpc._protocol import Reply, Request, request
from weft.distributed.rpc._workers import WorkerInfo
from weft.errors import ArgumentError, GradientError, WeftError
from weft.futures import collect_all, wait_all

if TYPE_CHECKING:
    from weft.distributed.rpc._agent import Agent

Awaited = dict[WorkerInfo, int]
"""How many tensors each worker has sent whose gradients have not come."""


class Passage(NamedTuple):
    """A backward pass: a number of the worker that has begun it, and how it goes."""

    worker: int
    number: int
    retain_graph: bool
    smart: bool


_numbers = count()


class Part:
    """One worker's part in a pass."""

    def __init__(self, context: Context, passage: Passage, roots: Sequence[tuple[Value, Value]] = ()) -> None:
        self._context = context
        self._passage = passage
        self._roots = roots
        self._marked: set[int] = set()
        self._seen: set[Value] = set()  # by marking
        self._lock = threading.Lock()
        self._collected = Collected(context)
        self._engine: IncrementalBackwardPass | None = None
        self._values: dict[int, Value] = {}  # those that were sent and take part
        self._complete: dict[WorkerInfo, dict[int, Tensor | None]] = {}  # gradients that are on their way

    def mark(self, numbers: Iterable[int]) -> dict[WorkerInfo, list[int]]:
        """Have tensors that were sent take part; returns the received ones that they, or the roots, depend on."""
        onward: dict[WorkerInfo, list[int]] = {}
        with self._lock:
            fresh = set(numbers) - self._marked
            self._marked |= fresh
            for start in [self._sent(number) for number in fresh] or [root for root, _ in self._roots]:
                values = inputs_first(start, self._enters, lambda value: received(value) is None)
                self._seen.update(values)
                for value in values:
                    come = received(value)
                    if come is not None:
                        onward.setdefault(come.sender, []).append(come.number)
        return onward

    def begin(self) -> dict[WorkerInfo, dict[int, Tensor | None]]:
        """Begin at the roots; returns what is to go to others."""
        with self._lock:
            return self._go_on({})

    def give(self, grads: Mapping[int, Tensor | None]) -> dict[WorkerInfo, dict[int, Tensor | None]]:
        """Go on with the gradients of tensors that were sent; returns what is to go to others."""
        with self._lock:
            return self._go_on(grads)

    @property
    def awaited(self) -> int:
        """How many gradients have not come."""
        return 0 if self._engine is None else self._engine.awaited

    def _enters(self, value: Value) -> bool:
        return value.tape is not None and value not in self._seen

    def _sent(self, number: int) -> Value:
        sent = self._context.sends.get(number)
        if sent is None:
            raise GradientError(
                "Trying to backward through the graph a second time: this worker has given up what it needs for that. "
                "Specify retain_graph=True in the first pass if you need a second one"
            )
        return sent.value

    def _taking_part(self, number: int) -> Value:
        return self._values.get(number) or self._sent(number)

    def _ready(self) -> IncrementalBackwardPass:
        if self._engine is None:
            numbers = list(self._marked if self._passage.smart else self._context.sends)
            self._values = {number: self._sent(number) for number in numbers}
            self._engine = IncrementalBackwardPass(
                [*(root for root, _ in self._roots), *self._values.values()],
                deliver=self._collected.add, ends=lambda value: received(value) is not None,
                arrived_at=self._arrived_at, retain_graph=self._passage.retain_graph,
            )  # fmt: skip
            if not self._passage.smart:
                self._tell_of_unused(self._engine.reached.values())
        return self._engine

    def _tell_of_unused(self, reached: Iterable[Vertex]) -> None:
        """Tensors that came with others that take part, and do not do so themselves, have no gradients."""
        used = [come for come in map(received, reached) if come is not None]
        numbers = {(come.sender, come.number) for come in used}
        for sender, message in {(come.sender, come.message) for come in used}:
            for number in self._context.receipts.get((sender, message), ()):
                if (sender, number) not in numbers:
                    self._complete.setdefault(sender, {})[number] = None

    def _go_on(self, grads: Mapping[int, Tensor | None]) -> dict[WorkerInfo, dict[int, Tensor | None]]:
        self._complete = {}
        engine = self._ready()
        arrived = [_at_its_tensor(self._taking_part(at), grad) for at, grad in grads.items()]
        with within(None), self._collected, _as_gradient_errors(self._context.me):
            engine.give(arrived or self._roots)
        if not engine.awaited:
            self._context.parts.pop(self._passage, None)
            if not self._passage.retain_graph:
                for number in self._values:
                    self._context.sends.pop(number, None)
        return self._complete

    def _arrived_at(self, value: Vertex, grad: Value | None) -> None:
        come = received(value)
        assert come is not None, "the graph goes on elsewhere before received values alone"
        if come.context_id != self._context.id:
            raise GradientError(
                f"a tensor on the way to the roots came from {come.sender} in another context of distributed autograd; "
                "send it again in this one"
            )
        self._complete.setdefault(come.sender, {})[come.number] = None if grad is None else wrap(grad).cpu()


@contextmanager
def _as_gradient_errors(me: WorkerInfo) -> Iterator[None]:
    """Say on which worker a derivative, or a hook, of the user's has failed."""
    try:
        yield
    except WeftError:
        raise
    except Exception as error:
        raise GradientError(f"Error on Node {me.id}: {error}") from error


def _at_its_tensor(value: Value, grad: Tensor | None) -> tuple[Value, Value | None]:
    """A tensor and its gradient, which has come by the CPU: whatever the maps, it goes back to where its tensor is."""
    return value, None if grad is None else grad.to(value.aval.device)._read()


def run(agent: Agent, context_id: int, tensors: Sequence[Tensor], retain_graph: bool, smart: bool) -> None:
    """A pass from scalars of this worker; returns when all workers are done. `RuntimeError` for what is no root."""
    context = agent.contexts.existing(context_id)
    if not tensors:
        raise GradientError("No tensors provided for gradient computation.")
    roots = [_root(tensor) for tensor in tensors]
    passage = Passage(agent.me.id, next(_numbers), retain_graph, smart)
    part = context.parts[passage] = Part(context, passage, roots)
    try:
        marks = [call.flush() for call in _asked(agent, mark, context, passage, part.mark(()))] if smart else []
        if context.sends:  # others may mark some of them
            wait_all(marks)
        onward = part.begin()
        flush_pending()
        wait_all(marks)
        calls = [call.flush() for call in _asked(agent, gradients, context, passage, onward)]
        awaited = _least([*wait_all(calls), {agent.me: part.awaited}])
    finally:
        context.parts.pop(passage, None)
    missing = [f"{count} of {worker}" for worker, count in awaited.items() if count]
    if missing:
        raise GradientError(
            "FAST mode needs gradients for all tensors that were sent in the context, and none came for "
            f"{', '.join(missing)}: not all of them lead to the roots. Use mode='smart', or do not call what the roots "
            "do not need"
        )


def _root(tensor: Tensor) -> tuple[Value, Value]:
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


def _asked(
    agent: Agent, what: Request[int, Passage, Any], context: Context, passage: Passage, onward: Mapping[WorkerInfo, Any]
) -> list[Call]:
    """Calls that have others take part in a pass."""
    return [agent.ask(to, what, context.id, passage, content) for to, content in onward.items()]


def _least(answers: Iterable[Awaited]) -> Awaited:
    """What is awaited in the end: it only ever becomes less."""
    least: Awaited = {}
    for answer in answers:
        for worker, left in answer.items():
            least[worker] = min(left, least.get(worker, left))
    return least


# --- what peers have this worker do -----------------------------------------------------------------------------


@request()
def mark(reply: Reply, context_id: int, passage: Passage, numbers: Sequence[int]) -> None:
    """Have tensors that were sent take part in a pass; answered when all that they depend on do."""
    context, part = _part(reply.agent, context_id, passage)
    onward = part.mark(numbers)
    _answer_after(reply, _asked(reply.agent, mark, context, passage, onward), lambda _: None)


@request()
def gradients(reply: Reply, context_id: int, passage: Passage, grads: Mapping[int, Tensor | None]) -> None:
    """Go on with a pass; answered, with what is awaited, when all that this has set going is done."""
    reply.run_in_turn(_go_on, context_id, passage, grads)


def _go_on(reply: Reply, context_id: int, passage: Passage, grads: Mapping[int, Tensor | None]) -> None:
    agent = reply.agent
    context, part = _part(agent, context_id, passage)
    onward = part.give(grads)
    mine: Awaited = {agent.me: part.awaited}
    _answer_after(reply, _asked(agent, gradients, context, passage, onward), lambda answers: _least([mine, *answers]))


def _part(agent: Agent, context_id: int, passage: Passage) -> tuple[Context, Part]:
    """A context, and this worker's part in a pass, which begins with the first message about it."""
    context = agent.contexts.existing(context_id)
    with context.lock:
        part = context.parts.get(passage)
        if part is None:
            part = context.parts[passage] = Part(context, passage)
    return context, part


def _answer_after(reply: Reply, calls: list[Call], summed: Callable[[list[Any]], Any]) -> None:
    """Reply with what becomes of the answers to calls for which nobody waits here."""
    for call in calls:
        call.push(now=True)
    if calls:
        reply.follow(collect_all(calls).then(lambda done: summed([call.value() for call in done.value()])))
    else:
        reply.send(summed([]))
