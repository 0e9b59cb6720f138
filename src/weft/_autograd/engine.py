"""The backward pass: it visits recorded applications from the last to the first; gradients are values.

A value is used only by applications recorded after it, so its cotangent is complete when the pass reaches it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from weft._autograd import hooks
from weft._autograd.anomaly import check_finite
from weft._autograd.derive import Derivative, derivative_of, on_tape, smooth_outputs
from weft._autograd.graph import (
    Vertex,
    VertexKey,
    attached_to,
    drop_values,
    inputs_of,
    is_spent,
    key_of,
    mark_executed,
    second_backward_error,
    vertex_of,
)
from weft._autograd.hooks import Cotangents, Gradients
from weft._autograd.saving import Packed
from weft._autograd.sums import add_values
from weft._base.overriding import Operators
from weft._base.state import Ambient, ambient, enter, leave
from weft._base.timeline import Phase, spanned
from weft._lazy.native import native
from weft._lazy.record import record
from weft._lazy.role import INTERIOR, Freed, Leaf, Role, custom_of
from weft._lazy.value import Executed, Link, Value, recorded
from weft.errors import GradientError

Deliver = Callable[[Leaf, Value], None]
_FIRST = (0,)


@spanned(Phase.RECORDING)
def backward(
    roots: Sequence[tuple[Value | Role, Value]],
    *,
    deliver: Deliver | None,
    targets: Sequence[Value | Role] | None = None,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> Gradients:
    """Run a backward pass from `roots`, pairs of a place in the graph and its cotangent.

    Every leaf's gradient is passed to `deliver`, unless that is None, as soon as it is complete. With `targets`, only
    what leads to them is computed, and their gradients are returned; None for those on which the roots do not depend.
    """
    token = enter(grad=create_graph)
    try:
        if _running.queued is not None:  # a pass started by a derivative of another one
            return BackwardPass(deliver, targets, retain_graph).run(roots)
        with callback_queue([]) as queued:
            grads = BackwardPass(deliver, targets, retain_graph).run(roots)
            for callback in queued:
                callback()
        return grads
    finally:
        leave(token)


class _Running(threading.local):
    """The pass of a thread: what its hooks have queued (None if there is no pass), and what it is differentiating."""

    queued: list[Callable[[], None]] | None = None
    vertex: Vertex | None = None
    current: BackwardPass | None = None


# no cell: a backward pass that runs in a captured function ends there
_running = _Running()


def is_running() -> bool:
    """Whether this thread is in a backward pass."""
    return _running.queued is not None


def current_pass() -> BackwardPass | None:
    """The backward pass of this thread."""
    return _running.current


def differentiated() -> Vertex | None:
    """The application whose derivative this thread is recording, while an observer watches what is recorded."""
    return _running.vertex


class callback_queue:
    """A context that collects this thread's `queue_callback` arguments in a list."""

    __slots__ = ("_before", "_queued")

    def __init__(self, queued: list[Callable[[], None]]) -> None:
        self._queued = queued

    def __enter__(self) -> list[Callable[[], None]]:
        self._before = _running.queued, _running.vertex
        _running.queued = self._queued
        return self._queued

    def __exit__(self, *_: object) -> None:
        _running.queued, _running.vertex = self._before


def queue_callback(callback: Callable[[], None]) -> None:
    """Call `callback()` when the outermost backward pass of this thread is complete; to be called from hooks."""
    queued = _running.queued
    if queued is None:
        raise GradientError("queue_callback() is for hooks that a backward pass runs, and none is running")
    queued.append(callback)


class BackwardPass:
    """One backward pass.

    reached   everything on the tape on which the roots depend
    families  for applications with several outputs: all reached outputs, until the application is executed
    useful    the targets and what leads to them; None if all leaves are wanted
    grads     cotangents so far
    left      number of uses of each leaf whose gradients have not arrived
    wanted    the targets, with their gradients once they are complete
    passed    what has been executed, and is freed at the end
    """

    def __init__(self, deliver: Deliver | None, targets: Sequence[Value | Role] | None, retain_graph: bool) -> None:
        self.deliver = deliver
        self.targets = None if targets is None else [key_of(target) for target in targets]
        self.retain_graph = retain_graph
        self.ambient = ambient()
        self.reached: dict[VertexKey, Vertex] = {}
        self.families: dict[VertexKey, list[Vertex]] = {}
        self.useful: set[VertexKey] | None = None
        self.grads: dict[VertexKey, Value] = {}
        self.left: dict[VertexKey, int] = {}
        self.wanted: dict[VertexKey, Value | None] = dict.fromkeys(self.targets or ())
        self.passed: list[Executed] = []

    def run(self, roots: Sequence[tuple[Value | Role, Value]]) -> Gradients:
        ordered = self._reach([root for root, _ in roots])
        if not self.retain_graph:
            for level in self.ambient.watchers.forward:  # tangents go through what the pass frees
                level.keep([vertex for vertex in ordered if isinstance(vertex, Value)])
        before = _running.vertex, _running.current
        _running.current = self
        try:
            for place, cotangent in roots:
                self._add(key_of(place), cotangent)
                self._arrived(key_of(place))
            self._execute(ordered[::-1])
            self.ambient.pending.show()  # what was recorded without a look at the limit
        finally:
            _running.vertex, _running.current = before
            drop_values(self.passed)
        return [self.wanted[key] for key in self.targets or ()]

    def will_reach(self, place: Value | Role) -> bool:
        """Whether the pass computes a gradient at a place in the graph, if the roots' gradients flow there."""
        key = key_of(place)
        reached = key in self.reached or key in self.left
        return reached and (self.useful is None or key in self.useful)

    # --- what takes part --------------------------------------------------------------------------------------

    def _reach(self, roots: Sequence[Value | Role]) -> list[Vertex]:
        """Everything on the tape on which the roots depend, in order of recording; counts the uses of leaves.

        `RuntimeError` if something would be executed that an earlier pass has freed.
        """
        reached = self.reached
        groups: dict[int, list[Vertex]] = {}
        spent: list[Vertex] = []
        stack: list[Vertex] = []
        for root in roots:
            if root.role is not None:
                self._enter(root, stack, spent)
        if native is None:
            self._walk(stack, spent, groups)
        else:
            native.walk(self, stack, spent, groups)
        # What uses a value was recorded after it, so the numbers of recording are a topological order.
        ordered = [reached[key] for key in sorted(reached)]  # pyright: ignore[reportArgumentType, reportUnknownVariableType]  numbers, inside of the tape
        if self.targets is not None:
            self.useful = self._leading_to(self.targets, ordered)
        # Refused here, before any gradient is delivered: half of a backward pass would leave wrong sums in `.grad`.
        if any(self._needed(inputs_of(vertex)) for vertex in spent):
            raise second_backward_error()
        return ordered

    def _walk(self, stack: list[Vertex], spent: list[Vertex], groups: dict[int, list[Vertex]]) -> None:
        """Visit what the vertices on the stack depend on."""
        reached, left = self.reached, self.left
        while stack:
            vertex = stack.pop()
            alone = vertex.origin.alone  # pyright: ignore[reportOptionalMemberAccess]  an application
            inputs = vertex.inputs if alone else self._inputs_once(vertex, groups)
            for x in inputs:
                role = x.role
                if role is INTERIOR:
                    time = x.time
                    if time not in reached:
                        reached[time] = x
                        stack.append(x)
                elif role is not None:
                    if isinstance(role, Leaf):
                        left[role] = left.get(role, 0) + 1
                    else:
                        self._enter(x, stack, spent)

    def _inputs_once(self, vertex: Vertex, groups: dict[int, list[Vertex]]) -> tuple[Link, ...]:
        """The inputs of an application; of one with several outputs, none if another output has led to them."""
        inputs = vertex.inputs
        if vertex.origin.alone:  # pyright: ignore[reportOptionalMemberAccess]  an application
            return inputs
        inputs = inputs_of(vertex)
        family = self.families[vertex.time] = groups.setdefault(id(inputs), [])
        family.append(vertex)
        return inputs if len(family) == 1 else ()

    def _enter(self, x: Link, stack: list[Vertex], spent: list[Vertex]) -> None:
        """Visit a root, or an input that has its own role."""
        role, key = x.role, key_of(x)
        if isinstance(key, Leaf):
            self.left[key] = self.left.get(key, 0) + 1
        elif key not in self.reached:
            if isinstance(role, Freed) and not isinstance(role, Executed):  # its links are freed
                raise second_backward_error()
            vertex = self.reached[key] = vertex_of(x)
            stack.append(vertex)
            if is_spent(vertex):
                spent.append(vertex)

    def _leading_to(self, targets: Sequence[VertexKey], ordered: list[Vertex]) -> set[VertexKey]:
        """The targets, and the vertices through which a target is reached."""
        useful = self.useful = set(targets)
        for vertex in ordered:
            if self._needed(inputs_of(vertex)):
                useful.add(key_of(vertex))
        return useful

    def _needed(self, inputs: Sequence[Value]) -> tuple[int, ...]:
        """Positions of the inputs whose gradients are needed."""
        useful = self.useful
        return tuple(
            [i for i, x in enumerate(inputs) if x.role is not None and (useful is None or key_of(x) in useful)]
        )

    # --- executing --------------------------------------------------------------------------------------------

    def _execute(self, vertices: list[Vertex]) -> None:
        """Propagate gradients through the applications of these vertices; each one after all that use its outputs."""
        # Most applications have one output, no hooks and no user's derivative. This loop, which calls little, is for
        # them; all others go to `_differentiate`.
        common = self.useful is None and not self.ambient.watched
        if native is not None and common:
            native.execute(self, vertices)
            return
        grads, left, passed, state, retain_graph = self.grads, self.left, self.passed, self.ambient, self.retain_graph
        for vertex in vertices:
            origin, inputs = vertex.origin, vertex.inputs
            if vertex.role is not INTERIOR or not common or not origin.alone:  # pyright: ignore[reportOptionalMemberAccess]  an application
                self._differentiate(vertex)
                continue
            signature = origin.signature  # pyright: ignore[reportOptionalMemberAccess]
            need = _FIRST if len(inputs) == 1 else on_tape(inputs)
            derivative = signature.derivatives.cache.get(need) or derivative_of(signature, need, _FIRST)
            grad = grads.pop(vertex.time, None)
            if grad is None:
                self._count(inputs)
            elif derivative.only is None:
                self._propagate(inputs, need, derivative, self._compute(derivative, (*inputs, vertex, grad)), (grad,))
            else:
                # `record` without its tests: such a derivative has one output and no doubt, and nothing is watched. The
                # length of the list is not looked at either, but once, at the end of the pass (`show`).
                result = recorded(derivative.only, derivative.pick((*inputs, vertex, grad)), state)
                x = inputs[need[0]]
                key = x.time if x.role is INTERIOR else key_of(x)
                before = grads.get(key)
                grads[key] = result if before is None else add_values(before, result, state)
                if key in left:
                    self._arrived(key)
            if not retain_graph:
                mark_executed(vertex, derivative.saves, passed)  # pyright: ignore[reportArgumentType]

    def _compute(self, derivative: Derivative, available: tuple[Link, ...]) -> Sequence[Value]:
        """Record the gradients that must be computed, from (*inputs, *outputs, *cotangents)."""
        if derivative.signature is None:
            return ()
        return record(derivative.signature, derivative.pick(available), self.ambient)

    def _differentiate(self, vertex: Vertex) -> None:
        """The general case: several outputs, hooks, targets, users' derivatives, or executed by an earlier pass."""
        _running.vertex = vertex
        members = [vertex]
        family = self.families.get(vertex.time)
        if family is not None:
            members, family[:] = list(family), []
            if not members:
                return
        members = [vertex_of(member) for member in members]  # a derivative may have run another pass over them
        inputs = inputs_of(members[0])
        cotangents = self._cotangents(members)
        need = self._needed(inputs)
        if not need:
            if all(x.role is None for x in inputs):  # a place of a function's argument, at which gradients end
                self._mark(members, False)
            return
        if any(map(is_spent, members)):
            raise second_backward_error()
        attached = attached_to(members[0])
        if attached is not None:
            cotangents = hooks.before(attached, members[0], cotangents)
        custom = custom_of(members[0].role)
        saves = False
        if not cotangents:
            grads: Gradients = [None] * len(need)
            saves = custom is None and _saves(members[0], inputs)
        elif custom is not None:
            every = custom(dict(cotangents), members)
            grads = [every[i] for i in need]
        else:
            grads = gradients_of(members, need, cotangents, self.ambient)
            saves = _saves(members[0], inputs) or _saves_for(members[0], need, cotangents)
        if attached is not None:
            grads = hooks.after(attached, members[0], inputs, need, grads, cotangents)
        for i, grad in zip(need, grads, strict=True):
            if grad is not None:
                self._add(key_of(inputs[i]), grad)
        self._count(inputs)
        self._mark(members, saves)

    def _mark(self, members: Sequence[Vertex], saves: bool) -> None:
        """Free an application that was executed, unless the graph is kept; `saves` if it has read arrays."""
        if not self.retain_graph:
            for member in members:
                if isinstance(member, Value):
                    mark_executed(member, saves, self.passed)
                elif isinstance(member, Packed):
                    member.drop(saves)

    def _cotangents(self, members: list[Vertex]) -> Cotangents:
        """Cotangents of an application's outputs by index, after hooks."""
        cotangents: Cotangents = []
        for vertex in members:
            grad = self.grads.pop(key_of(vertex), None)
            if grad is None:
                continue
            assert vertex.origin is not None, "only applications are inside of the tape"
            assert vertex.role is not None, "only applications are inside of the tape"
            grad = hooks.hooked(vertex.role, grad)
            if key_of(vertex) in self.wanted:
                self.wanted[key_of(vertex)] = grad
            cotangents.append((vertex.origin.index, grad))
        return sorted(cotangents, key=lambda pair: pair[0])

    # --- propagating ------------------------------------------------------------------------------------------

    def _propagate(
        self,
        inputs: Sequence[Value],
        need: Sequence[int],
        derivative: Derivative,
        results: Sequence[Value],
        cotangents: Sequence[Value],
    ) -> None:
        grads, left = self.grads, self.left
        for i, source in zip(need, derivative.sources, strict=True):
            x = inputs[i]
            key = x.time if x.role is INTERIOR else key_of(x)
            if source is not None:
                grad = results[source[1]] if source[0] else cotangents[source[1]]
                before = grads.get(key)
                grads[key] = grad if before is None else add_values(before, grad, self.ambient)
            if key in left:
                self._arrived(key)

    def _add(self, key: VertexKey, grad: Value) -> None:
        if grad.aval.owner is not None and not isinstance(key, Leaf):  # only leaves have sparse gradients
            grad = grad.aval.owner.to_owner(grad, None)
        before = self.grads.get(key)
        self.grads[key] = grad if before is None else add_values(before, grad, self.ambient)

    def _arrived(self, key: VertexKey) -> None:
        """Count a use of a value whose gradient has arrived."""
        left = self.left.get(key)
        if left is not None:
            self.left[key] = left - 1
            if left == 1:
                self._complete(key)

    def _count(self, inputs: Sequence[Value]) -> None:
        """Count the uses of leaves by an application whose gradients, if there are any, have been added."""
        for x in inputs:
            if x.role is not None:
                self._arrived(key_of(x))

    def _complete(self, key: VertexKey) -> None:
        """Deliver the gradient of a leaf, all of whose uses have arrived."""
        grad = self.grads.pop(key, None)
        if grad is None:
            return
        assert isinstance(key, Leaf), "uses of leaves alone are counted"
        grad = hooks.hooked(key, grad)
        if self.targets is not None:
            if key not in self.wanted:
                return
            self.wanted[key] = grad
        if self.deliver is None:
            return
        attached = attached_to(key)
        if attached is None:
            self.deliver(key, grad)
            return
        cotangents = hooks.before(attached, key, [(0, grad)])
        if cotangents:
            self.deliver(key, cotangents[0][1])
        hooks.after(attached, key, (), (), [], cotangents)


def gradients_of(members: Sequence[Vertex], need: Sequence[int], cotangents: Cotangents, state: Ambient) -> Gradients:
    """Record the gradients of the inputs `need` of an application, of which `members` are outputs."""
    head = members[0]
    assert head.origin is not None, "only applications are inside of the tape"
    derivative = derivative_of(head.origin.signature, tuple(need), tuple([index for index, _ in cotangents]))
    results: Sequence[Value] = ()
    if derivative.signature is not None:
        if isinstance(head, Packed):
            operands = head.operands(derivative)
        else:
            inputs = inputs_of(head)
            operands = [inputs[i] for i in derivative.inputs]
            operands += [output_of(members, i, state) for i in derivative.outputs]
        operands += [cotangents[i][1] for i in derivative.cotangents]
        if state.overrides.dispatchers:
            results = Operators.derive(head.origin.signature, derivative.signature, tuple(operands))
        else:
            results = record(derivative.signature, tuple(operands), state, getattr(head, "doubt", None))
        if state.watchers.anomaly and state.watchers.check_nan:
            check_finite(head, results)
    grads: Gradients = []
    for source in derivative.sources:
        grads.append(None if source is None else results[source[1]] if source[0] else cotangents[source[1]][1])
    return grads


def output_of(members: Sequence[Vertex], index: int, state: Ambient, inputs: tuple[Value, ...] | None = None) -> Value:
    """The value of one output of an application, recorded again from the same inputs if nobody has kept it."""
    head = members[0]
    for value in members:
        assert value.origin is not None, "outputs have an origin"
        assert isinstance(value, Value), "passed values are not read"
        if value.origin.index == index:
            return value
        main = value.origin.signature.main
        if value.extras and index >= main:
            return value.extras[index - main]
    assert head.origin is not None, "outputs have an origin"
    values = record(head.origin.signature, head.inputs if inputs is None else inputs, state)
    return (*values, *values[0].extras)[index]


def _saves(vertex: Vertex, inputs: Sequence[Value]) -> bool:
    """Whether an application has saved something for the derivative of all its inputs and outputs."""
    assert vertex.origin is not None, "only applications are inside of the tape"
    signature = vertex.origin.signature
    return derivative_of(signature, on_tape(inputs), smooth_outputs(signature)).saves


def _saves_for(vertex: Vertex, need: Sequence[int], cotangents: Cotangents) -> bool:
    """The same for the derivative of the inputs `need`, from these cotangents."""
    assert vertex.origin is not None, "only applications are inside of the tape"
    return derivative_of(vertex.origin.signature, tuple(need), tuple([index for index, _ in cotangents])).saves
