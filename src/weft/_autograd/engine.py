"""The backward pass: applications in an order in which cotangents are complete, gradients handed on as values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from weft._base.state import Ambient, ambient, using
from weft._lazy.infer import ONE, Call, call_of, signature_of
from weft._lazy.realize import array_of
from weft._lazy.record import record, recorded
from weft._lazy.value import FREED, INTERIOR, Tape, Value
from weft._autograd.derive import derivative_of
from weft.errors import GradientError
from weft.ops._table import TABLE

Deliver = Callable[[Tape, Value], None]


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
    with using(grad=create_graph):
        return _Pass(roots, deliver, targets, retain_graph).run()


class _Pass:
    """One backward pass.

    waiting  uses of a value, or of a group of sibling outputs, whose cotangents have not arrived
    grads    cotangents so far
    groups   outputs of one application by the identity of their inputs
    """

    def __init__(
        self,
        roots: Sequence[tuple[Value, Value]],
        deliver: Deliver,
        targets: Sequence[Value] | None,
        retain_graph: bool,
    ) -> None:
        self.deliver = deliver
        self.targets = None if targets is None else set(targets)
        self.found: dict[Value, Value] = {}
        self.retain_graph = retain_graph
        self.ambient = ambient()
        self.groups: dict[int, list[Value]] = {}
        self.grads: dict[Value, Value] = {}
        self.waiting: dict[Value, int] = {}
        order = self._discover([value for value, _ in roots])
        self.useful = None if self.targets is None else self._leading_to(self.targets, order)
        for value, cotangent in roots:
            self._add(value, cotangent)

    def _head(self, value: Value) -> Value:
        """The value that stands for all outputs of an application."""
        origin = value.origin
        if origin is None or len(origin.signature.outputs) == 1 or (value.tape and value.tape.leaf):
            return value
        group = self.groups.setdefault(id(value.inputs), [value])
        if value not in group:
            group.append(value)
        return group[0]

    def _discover(self, roots: list[Value]) -> list[Value]:
        """Count the uses of every value that the roots depend on; return heads, inputs first."""
        waiting = self.waiting
        order: list[Value] = []
        stack: list[Value | None] = []
        for root in roots:
            stack.append(root)
            while stack:
                value = stack.pop()
                if value is None:
                    done = stack.pop()
                    assert done is not None, "markers are pushed above their value"
                    order.append(done)
                    continue
                head = self._head(value)
                if head in waiting:
                    continue
                waiting[head] = 0
                tape = head.tape
                stack.append(head)
                stack.append(None)
                if tape is None or tape.leaf:
                    continue
                if tape.freed:
                    raise GradientError(
                        "Trying to backward through the graph a second time (or directly access saved tensors after "
                        "they have already been freed). Specify retain_graph=True if you need to backward through "
                        "the graph a second time"
                    )
                stack.extend([x for x in head.inputs if x.tape is not None])
        for head in order:
            tape = head.tape
            if tape is not None and not tape.leaf:
                for x in head.inputs:
                    if x.tape is not None:
                        waiting[self._head(x)] += 1
        return order

    def _leading_to(self, targets: set[Value], order: list[Value]) -> set[Value]:
        """Heads of the values through which a target is reached."""
        heads = {self._head(t) for t in targets}
        useful: set[Value] = set()
        for head in order:
            tape = head.tape
            inner = () if tape is None or tape.leaf else head.inputs
            if head in heads or any(x.tape is not None and self._head(x) in useful for x in inner):
                useful.add(head)
        return useful

    def run(self) -> dict[Value, Value]:
        waiting, useful = self.waiting, self.useful
        ready = [head for head, uses in waiting.items() if not uses]
        while ready:
            head = ready.pop()
            if useful is not None and head not in useful:
                inputs: Sequence[Value] = ()
            else:
                inputs = self._complete(head)
            for x in inputs:
                if x.tape is not None:
                    at = self._head(x)
                    waiting[at] -= 1
                    if not waiting[at]:
                        ready.append(at)
        return self.found

    def _complete(self, head: Value) -> Sequence[Value]:
        """All cotangents of an application have arrived: hand gradients on to its inputs, which are returned."""
        members = self.groups.get(id(head.inputs), [head]) if head.origin is not None else [head]
        if head.tape is not None and head.tape.leaf:
            members = [head]
        given: list[tuple[int, Value]] = []
        for value in members:
            grad = self.grads.pop(value, None)
            if grad is None:
                continue
            tape = value.tape
            if tape is not None and tape.hooks:
                for hook in list(tape.hooks.values()):
                    grad = hook(grad) or grad
            if self.targets is not None:
                if value in self.targets:
                    self.found[value] = grad
            elif tape is not None and tape.leaf:
                self.deliver(tape, grad)
            given.append((value.origin.index if value.origin is not None else 0, grad))
        if head.tape is None or head.tape.leaf:
            return ()
        inputs = head.inputs
        if given:
            self._differentiate(head, members, sorted(given, key=lambda pair: pair[0]))
        if not self.retain_graph:
            for value in members:
                _free(value)
        return inputs

    def _differentiate(self, head: Value, members: list[Value], given: list[tuple[int, Value]]) -> None:
        inputs = head.inputs
        need = tuple([i for i, x in enumerate(inputs) if x.tape is not None and self._is_useful(x)])
        if not need:
            return
        assert head.origin is not None and head.tape is not None, "only applications are differentiated"
        signature = head.origin.signature
        if head.tape.custom is not None:
            grads = head.tape.custom(dict(given))
            for i in need:
                if grads[i] is not None:
                    self._add(inputs[i], grads[i])
            return
        derivative = derivative_of(signature, need, tuple([index for index, _ in given]))
        made: tuple[Value, ...] = ()
        if derivative.signature is not None:
            operands = [inputs[i] for i in derivative.inputs]
            operands += [_output(members, i) for i in derivative.outputs]
            operands += [given[i][1] for i in derivative.cotangents]
            made = record(derivative.signature, tuple(operands), self.ambient)
            if self.ambient.anomaly:
                _check_finite(head, made)
        for i, source in zip(need, derivative.sources, strict=True):
            if source is not None:
                kind, at = source
                self._add(inputs[i], made[at] if kind == "made" else given[at][1])

    def _is_useful(self, value: Value) -> bool:
        return self.useful is None or self._head(value) in self.useful

    def _add(self, value: Value, grad: Value) -> None:
        before = self.grads.get(value)
        self.grads[value] = grad if before is None else add_values(before, grad, self.ambient)


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
    return value


def _free(value: Value) -> None:
    """Let go of what the derivative needed."""
    if value.tape is INTERIOR:
        value.tape = FREED
    elif value.tape is not None:
        value.tape.freed = True
        value.tape.custom = None
    if value.array is not None:
        value.origin = None
        value.inputs = ()
        value.extras = None


def _check_finite(head: Value, grads: Sequence[Value]) -> None:
    """Anomaly mode: stop at the first derivative that gives NaN, and name the line of the forward operator."""
    assert head.origin is not None and head.tape is not None, "only applications are differentiated"
    for at, grad in enumerate(grads):
        array: Any = array_of(grad)
        if grad.aval.dtype.is_differentiable and bool(jnp.isnan(array).any()):
            raise GradientError(
                f"Function '{backward_name(head)}' returned nan values in its {at}th output. "
                f"The forward operator {head.origin.signature.name} was called at {head.tape.site or '<unknown>'}"
            )


_BACKWARD_NAMES = {
    "alpha_dropout_train": "Mul", "broadcast_to": "Expand", "carry": "Copy", "conv1d": "Convolution",
    "conv2d": "Convolution", "conv3d": "Convolution", "copy": "Copy", "cross_entropy_loss": "NllLoss",
    "dropout_train": "Mul", "flatten": "View", "index_tensors": "Index", "layer_norm": "NativeLayerNorm",
    "linear": "Addmm", "pow_number": "Pow", "reshape": "View", "slice_dim": "Slice", "static_slice": "Slice",
    "std_dims": "Std", "swapaxes": "Transpose", "swapdims": "Transpose", "to_dtype": "ToCopy", "true_divide": "Div",
    "var_dims": "Var",
}  # fmt: skip
_MATMUL_NAMES = {(1, 1): "Dot", (2, 1): "Mv", (2, 2): "Mm"}


def backward_name(value: Value) -> str:
    """What `grad_fn` is called: `AddBackward0` for `add`. Where rows differ from PyTorch's operators, as it says."""
    if value.origin is None:
        return "FreedBackward"
    signature = value.origin.signature
    name = signature.name
    if name == "matmul":
        title = _MATMUL_NAMES.get(tuple([len(aval.shape) for aval in signature.avals]), "Bmm")
    else:
        title = _BACKWARD_NAMES.get(name) or "".join(
            w[:1].upper() + w[1:] for w in name.removesuffix("_dim").replace(" ", "_").split("_")
        )
    whole = name not in ("sum", "mean") or not value.aval.shape
    return f"{title}Backward{0 if whole else 1}"
