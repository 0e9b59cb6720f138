"""The backward pass: applications from the last recorded to the first, gradients handed on as values.

Whatever uses a value was recorded after it, so in this order a value's cotangent is complete when its turn comes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import jax.numpy as jnp

from weft._autograd.derive import Derivative, derivative_of
from weft._base.state import Ambient, ambient, using
from weft._lazy.infer import ONE, Call, call_of, signature_of
from weft._lazy.realize import array_of
from weft._lazy.record import record
from weft._lazy.value import FREED, INTERIOR, Tape, Value, recorded
from weft.errors import GradientError
from weft.ops._table import TABLE

Deliver = Callable[[Tape, Value], None]
_FIRST = (0,)
_by_time = attrgetter("time")


def backward(
    roots: Sequence[tuple[Value, Value]],
    *,
    deliver: Deliver,
    targets: Sequence[Value] | None = None,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> dict[Value, Value]:
    """Run backward from `roots`, pairs of a value and its cotangent.

    Without `targets`, every leaf's gradient goes to `deliver` as soon as it is complete. With `targets`, only what
    leads to them is computed, and their gradients are returned.
    """
    if getattr(_running, "queued", None) is not None:  # a pass that a derivative of another one runs
        with using(grad=create_graph):
            return Pass(deliver, targets, retain_graph).run(roots)
    queued: list[Callable[[], None]] = []
    with queueing(queued), using(grad=create_graph):
        found = Pass(deliver, targets, retain_graph).run(roots)
        for callback in queued:
            callback()
    return found


_running = threading.local()


@contextmanager
def queueing(queued: list[Callable[[], None]]) -> Iterator[None]:
    """Put what `queue_callback` gets in this thread into a list."""
    before = getattr(_running, "queued", None)
    _running.queued = queued
    try:
        yield
    finally:
        _running.queued = before


def queue_callback(callback: Callable[[], None]) -> None:
    """Call `callback()` when the outermost backward pass of this thread is complete; from a hook that it runs."""
    queued = getattr(_running, "queued", None)
    if queued is None:
        raise GradientError("queue_callback() is for hooks that a backward pass runs, and none is running")
    queued.append(callback)


class Pass:
    """One backward pass.

    grads   cotangents so far
    left    uses of each leaf whose gradients have not arrived
    """

    def __init__(self, deliver: Deliver, targets: Sequence[Value] | None, retain_graph: bool) -> None:
        self.deliver = deliver
        self.targets = None if targets is None else set(targets)
        self.found: dict[Value, Value] = {}
        self.retain_graph = retain_graph
        self.ambient = ambient()
        self.grads: dict[Value, Value] = {}
        self.left: dict[Value, int] = {}

    def run(self, roots: Sequence[tuple[Value, Value]]) -> dict[Value, Value]:
        ordered = self._reach(roots)
        useful = None if self.targets is None else self._leading_to(self.targets, ordered)
        for value, cotangent in roots:
            self._add(value, cotangent)
            self._arrived(value)
        done: set[int] = set()
        for value in reversed(ordered):
            if useful is None and value.tape is INTERIOR:
                origin = value.origin
                assert origin is not None, "only applications are inside of the tape"
                if origin.alone:  # the common case
                    self._differentiate_one(value)
                    continue
            self._differentiate(value, ordered, useful, done)
        return self.found

    def _reach(self, roots: Sequence[tuple[Value, Value]]) -> list[Value]:
        """Everything inside of the tape that the roots depend on, in order of recording; counts uses of leaves."""
        reached: set[Value] = set()
        left = self.left
        stack: list[Value] = []
        shared: set[int] = set()  # inputs of applications with several outputs, which share them
        for root, _ in roots:
            if root.tape is None:
                continue
            if root.tape.leaf:
                left[root] = left.get(root, 0) + 1
            elif root not in reached:
                reached.add(root)
                stack.append(root)
        while stack:
            value = stack.pop()
            tape = value.tape
            if tape is not INTERIOR and tape.freed:  # pyright: ignore[reportOptionalMemberAccess]  all here have one
                raise GradientError(
                    "Trying to backward through the graph a second time (or directly access saved tensors after they "
                    "have already been freed). Specify retain_graph=True if you need to backward through the graph a "
                    "second time"
                )
            inputs = value.inputs
            if not value.origin.alone:  # pyright: ignore[reportOptionalMemberAccess]  an application
                if id(inputs) in shared:
                    continue
                shared.add(id(inputs))
            for x in inputs:
                tape = x.tape
                if tape is not None:
                    if tape.leaf:
                        left[x] = left.get(x, 0) + 1
                    elif x not in reached:
                        reached.add(x)
                        stack.append(x)
        return sorted(reached, key=_by_time)

    def _leading_to(self, targets: set[Value], ordered: list[Value]) -> set[Value]:
        """The values through which a target is reached, and the targets."""
        useful = set(targets)
        for value in ordered:
            if value not in useful and any(x.tape is not None and x in useful for x in value.inputs):
                useful.add(value)
        return useful

    def _differentiate_one(self, value: Value) -> None:
        """Hand the gradient of an application with one output, and nothing special about it, on to its inputs."""
        inputs, grad = value.inputs, self.grads.pop(value, None)
        if grad is None:
            self._skip(inputs)
        else:
            signature = value.origin.signature  # pyright: ignore[reportOptionalMemberAccess]  checked by the caller
            need = _FIRST if len(inputs) == 1 else tuple([i for i, x in enumerate(inputs) if x.tape is not None])
            derivative = signature.derived.get(need) or derivative_of(signature, need, _FIRST)
            only = derivative.only
            if only is not None and not self.ambient.grad and not self.ambient.anomaly:
                made_one = recorded(only, derivative.pick((*inputs, value, grad)))
                self.ambient.pending.append(made_one)
                x = inputs[need[0]]
                before = self.grads.get(x)
                self.grads[x] = made_one if before is None else add_values(before, made_one, self.ambient)
                if x in self.left:
                    self._arrived(x)
            else:
                self._hand_on(inputs, need, derivative, self._gradients_of(value, derivative, grad), (grad,))
        if not self.retain_graph:
            _free(value)

    def _gradients_of(self, value: Value, derivative: Derivative, grad: Value) -> Sequence[Value]:
        if derivative.signature is None:
            return ()
        operands = derivative.pick((*value.inputs, value, grad))
        if self.ambient.plain or self.ambient.grad:
            made = record(derivative.signature, operands, self.ambient)
        else:
            made = [recorded(output, operands) for output in derivative.signature.outputs]
            self.ambient.pending.extend(made)
        if self.ambient.anomaly:
            _check_finite(value, made)
        return made

    def _hand_on(
        self,
        inputs: Sequence[Value],
        need: Sequence[int],
        derivative: Derivative,
        made: Sequence[Value],
        given: Sequence[Value],
    ) -> None:
        grads, left = self.grads, self.left
        for i, source in zip(need, derivative.sources, strict=True):
            x = inputs[i]
            if source is not None:
                grad = made[source[1]] if source[0] else given[source[1]]
                before = grads.get(x)
                grads[x] = grad if before is None else add_values(before, grad, self.ambient)
            if x in left:
                self._arrived(x)

    def _add(self, value: Value, grad: Value) -> None:
        before = self.grads.get(value)
        self.grads[value] = grad if before is None else add_values(before, grad, self.ambient)

    def _arrived(self, value: Value) -> None:
        """One use of a value has handed on its gradient."""
        left = self.left.get(value)
        if left is not None:
            self.left[value] = left - 1
            if left == 1:
                self._complete(value)

    def _skip(self, inputs: Sequence[Value]) -> None:
        """An application without a gradient: its uses of leaves hand on nothing."""
        for x in inputs:
            if x.tape is not None:
                self._arrived(x)

    def _complete(self, value: Value) -> None:
        grad = self.grads.pop(value, None)
        tape = value.tape
        if grad is None or tape is None:
            return
        grad = _hooked(tape, grad)
        if self.targets is None:
            self.deliver(tape, grad)
        elif value in self.targets:
            self.found[value] = grad

    def _differentiate(self, value: Value, ordered: list[Value], useful: set[Value] | None, done: set[int]) -> None:
        """The general case: several outputs, hooks, targets, derivatives written by users."""
        origin, tape = value.origin, value.tape
        assert origin is not None, "only applications are inside of the tape"
        assert tape is not None, "only applications are inside of the tape"
        inputs, signature = value.inputs, origin.signature
        if len(signature.outputs) == 1:
            members = [value]
        elif id(inputs) in done:
            return
        else:
            done.add(id(inputs))
            members = [v for v in ordered if v.inputs is inputs]
        given = self._given(members)
        need = tuple([i for i, x in enumerate(inputs) if x.tape is not None and (useful is None or x in useful)])
        if not given or not need:
            self._skip(inputs)
        elif tape.custom is not None:
            grads = tape.custom(dict(given), members)
            for i in need:
                if grads[i] is not None:
                    self._add(inputs[i], grads[i])
                self._arrived(inputs[i])
        else:
            self._differentiate_several(members, need, given)
        if not self.retain_graph:
            for member in members:
                _free(member)

    def _given(self, members: list[Value]) -> list[tuple[int, Value]]:
        """Cotangents of an application's outputs by index, after hooks."""
        given: list[tuple[int, Value]] = []
        for value in members:
            grad = self.grads.pop(value, None)
            if grad is None:
                continue
            assert value.origin is not None, "only applications are inside of the tape"
            assert value.tape is not None, "only applications are inside of the tape"
            grad = _hooked(value.tape, grad)
            if self.targets is not None and value in self.targets:
                self.found[value] = grad
            given.append((value.origin.index, grad))
        return sorted(given, key=lambda pair: pair[0])

    def _differentiate_several(
        self, members: list[Value], need: tuple[int, ...], given: list[tuple[int, Value]]
    ) -> None:
        head = members[0]
        inputs = head.inputs
        assert head.origin is not None, "only applications are inside of the tape"
        derivative = derivative_of(head.origin.signature, need, tuple([index for index, _ in given]))
        made: Sequence[Value] = ()
        if derivative.signature is not None:
            operands = [inputs[i] for i in derivative.inputs]
            operands += [_output(members, i) for i in derivative.outputs]
            operands += [given[i][1] for i in derivative.cotangents]
            doubt = head.doubt if head.origin.signature.doubtful else None
            made = record(derivative.signature, tuple(operands), self.ambient, doubt)
            if self.ambient.anomaly:
                _check_finite(head, made)
        self._hand_on(inputs, need, derivative, made, [grad for _, grad in given])


def _hooked(tape: Tape, grad: Value) -> Value:
    if tape.hooks:
        for _, hook in sorted(tape.hooks.items()):
            found = hook(grad)
            if found is not None and found.aval is not grad.aval:
                _check_replacement(grad, found)
            grad = found or grad
    return grad


def _check_replacement(grad: Value, found: Value) -> None:
    old, new = grad.aval, found.aval
    for word, before, after in (("size", list(old.shape), list(new.shape)), ("type", old.dtype, new.dtype)):
        if before != after:
            raise GradientError(f"a hook has changed the {word} of a gradient from {before} to {after}")


_ADD: list[Call] = []


def add_values(a: Value, b: Value, state: Ambient) -> Value:
    """The sum of two values of one type."""
    if not _ADD:
        op = TABLE["add"]
        _ADD.append(call_of(op, tuple(p.default if i > 1 else ONE for i, p in enumerate(op.params))))
    return record(signature_of(_ADD[0], (a.aval, b.aval)), (a, b), state)[0]


def _output(members: list[Value], index: int) -> Value:
    """The value of one output of an application. One that nobody kept is recorded anew from the same inputs."""
    for value in members:
        assert value.origin is not None, "outputs have an origin"
        if value.origin.index == index:
            return value
        main = value.origin.signature.main
        if value.extras and index >= main:
            return value.extras[index - main]
    origin = members[0].origin
    assert origin is not None, "outputs have an origin"
    value = recorded(origin.signature.outputs[index], members[0].inputs)
    value.tape = origin.signature.outputs[index].taped
    if origin.signature.doubtful:
        value.doubt = members[0].doubt
    return value


def _free(value: Value) -> None:
    """Let go of what the derivative needed."""
    if value.tape is INTERIOR:
        value.tape = FREED
    elif value.tape is not None:
        value.tape.freed = True
        value.tape.custom = None
    if value.array is not None:
        value.inputs = ()
        value.extras = None


def _check_finite(head: Value, grads: Sequence[Value]) -> None:
    """Anomaly mode: stop at the first derivative that gives NaN, and name the line of the forward operator."""
    assert head.origin is not None, "only applications are differentiated"
    assert head.tape is not None, "only applications are differentiated"
    for at, grad in enumerate(grads):
        array: Any = array_of(grad)
        if grad.aval.dtype.is_differentiable and bool(jnp.isnan(array).any()):
            raise GradientError(
                f"Function '{backward_name(head)}' returned nan values in its {at}th output. "
                f"The forward operator {head.origin.signature.name} was called at {head.tape.site or '<unknown>'}"
            )


def backward_name(value: Value) -> str:
    """What `grad_fn` is called: `AddBackward0` for `add`, and what a row's `grad_name` says where PyTorch differs."""
    origin = value.origin
    assert origin is not None, "only applications are inside of the tape"
    signature = origin.signature
    if value.tape is not None and value.tape.custom is not None:
        return f"{signature.name}Backward"
    said = signature.call.op.grad_name if signature.call is not None else ""
    if callable(said):
        said = said(tuple(aval.shape for aval in signature.avals), value.aval.shape)
    if said:
        return said if "Backward" in said or said == "CopySlices" else f"{said}Backward0"
    words = signature.name.removesuffix("_dim").replace(" ", "_").split("_")
    return "".join(w[:1].upper() + w[1:] for w in words) + "Backward0"
