"""What a function uses while it is captured, and where a replay finds it again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter

from weft._base.capture import Capture
from weft._base.interrupts import uninterrupted
from weft._base.pending import Pending
from weft._base.site import user_site
from weft._base.state import using
from weft._base.types import AnyCallable, Arg, Result
from weft._dispatch import apply
from weft._lazy.aval import Aval
from weft._lazy.call import ONE
from weft._lazy.external import taken_in
from weft._lazy.infer import call_of
from weft._lazy.role import Leaf
from weft._lazy.value import Absent, Value, is_taped
from weft._tensor.base import TensorBase
from weft._tensor.compile.kinds import kind_of
from weft._tensor.compile.snapshot import Snapshot
from weft._tensor.compile.stages import DeferredCall
from weft._tensor.generator import Generator
from weft._tensor.scalar import number
from weft._tensor.tensor import Tensor
from weft.ops._table import TABLE

Arguments = Sequence[Tensor]
Locator = Callable[[Arguments], TensorBase]
"""Finds a tensor, given the tensor arguments of a call."""
LeafLocator = Callable[[Arguments], Leaf]
"""Finds the `Leaf` in which a leaf accumulates its gradient."""


def _lifted(getter: Callable[[], float], _: Arguments) -> Value:
    return number(getter())


class FunctionCapture(Capture):
    """What a function has used while it was recorded: the ambient `capture` while it runs.

    region    the values that it has recorded
    locators  for tensors that a replay finds anew: arguments, gradients from outside, and their bases
    state     the other tensors that it has read
    kinds     the kinds of the tensors from outside, by identity
    same      pairs of inputs that were the same value
    written   tensors from outside that have been written in place
    held      leaves whose `.grad` it has read, and that gradient
    left      leaves whose `.grad` it has changed, the gradient before, and whether the result depends on that
    drawn     generators, and the two numbers of each draw
    keys      by identity of an object of this package, a name for it, and a function whose result must stay equal
    repeated  what every replay calls
    calls     the calls that it has deferred, and that every replay makes again
    prevented the reason why there can be no replay, or ""
    """

    def __init__(self, arguments: Arguments, snapshot: Snapshot) -> None:
        self.region = Pending(sys.maxsize)
        self.snapshot = snapshot
        self.sources: dict[Value, AnyCallable] = {}
        self.locators: dict[int, Locator] = {}
        self.state: dict[int, TensorBase] = {}
        self.kinds: dict[int, object] = {}
        self.same: list[tuple[AnyCallable, AnyCallable]] = []
        self.written: dict[int, TensorBase] = {}
        self.held: dict[int, tuple[LeafLocator, TensorBase | None]] = {}
        self.left: dict[int, tuple[LeafLocator, Leaf, TensorBase | None, bool]] = {}
        self.keys: dict[int, tuple[str, Callable[[], Result], Arg]] = {}
        self.repeated: list[Callable[[], object]] = []
        self.calls: list[DeferredCall] = []
        self._waiting: list[DeferredCall] = []  # those that have not been made yet
        self.drawn: list[tuple[Generator, Value, Value]] = []
        self.prevented = ""
        self._kept: list[TensorBase] = list(arguments)  # alive, so that an identity stands for one tensor
        self._inside: set[int] = set()  # identities: references would make values look as if they were held
        self._leaves: list[Value] = []
        self._counted = 0
        self._created: set[int] = set()  # identities of tensors in the snapshot that the function has made
        for key, tensor in snapshot.tensors.items():
            kind = self.kinds[key] = kind_of(tensor)
            if isinstance(kind, type):  # a parameter that has no elements before the function makes them
                self._created.add(key)
        for at, tensor in enumerate(arguments):
            self._find_anew(tensor, itemgetter(at))

    # --- tensors ------------------------------------------------------------------------------------------------

    def is_inside(self, value: Value) -> bool:
        """Whether the function has recorded a value."""
        region = self.region
        if self._counted < len(region):
            self._inside.update([id(v) for v in region[self._counted :]])
            self._counted = len(region)
        return id(value) in self._inside

    def creates_leaf(self, value: Value) -> None:
        """Called when the function creates a leaf from Python's data; the snapshot covers the data's origin."""
        self._inside.add(id(value))
        self._leaves.append(value)

    def read(self, tensor: TensorBase, value: Value) -> None:
        """Called when an operator reads a tensor."""
        key = id(tensor)
        if key not in self.locators and key not in self.state and not self.is_inside(value):
            self.state[key] = tensor
            self.kinds[key] = kind_of(tensor)
            self._comes_from(value, lambda _: taken_in(tensor._read()))
            if tensor._alias is not None:
                base = tensor._alias.base
                self.read(base, taken_in(base._read()))

    def _comes_from(self, value: Value, source: Callable[[Arguments], Value]) -> None:
        first = self.sources.setdefault(value, source)
        if first is not source:
            self.same.append((first, source))

    def _find_anew(self, tensor: TensorBase, locator: Locator) -> None:
        """Let a replay find a tensor, and through it its base, by the tensor's locator."""
        if id(tensor) in self.locators:
            return
        self.locators[id(tensor)] = locator
        self.kinds[id(tensor)] = kind_of(tensor)
        self._kept.append(tensor)
        self._comes_from(taken_in(tensor._read()), lambda arguments: taken_in(locator(arguments)._read()))
        alias = tensor._alias
        if alias is None:
            return
        self._find_anew(alias.base, lambda arguments: locator(arguments)._alias.base)  # pyright: ignore[reportOptionalMemberAccess]
        for at, (_, others) in enumerate(alias.steps):
            for i, value in enumerate(others):
                self._comes_from(value, lambda arguments, at=at, i=i: locator(arguments)._alias.steps[at][1][i])  # pyright: ignore[reportOptionalMemberAccess]

    def locator_of(self, tensor: TensorBase) -> Locator:
        """The locator of a tensor from outside."""
        return self.locators.get(id(tensor)) or (lambda _: tensor)

    def is_outside(self, tensor: TensorBase) -> bool:
        """Whether a tensor existed before the function ran."""
        key = id(tensor)
        if any(key in table for table in (self.locators, self.state, self.written)):
            return True
        return key in self.snapshot.tensors and key not in self._created

    def _is_new(self, tensor: TensorBase) -> bool:
        """Whether the function has created a tensor.

        The value alone does not say so: a view from outside has a recorded value once its base has been written.
        """
        return self.is_inside(tensor._read()) and not self.is_outside(tensor)

    def wrote(self, tensor: TensorBase, old: Value) -> None:
        """Called when a tensor was written in place. Tensors that the function has created do not count."""
        if not self.is_inside(old):
            self.written.setdefault(id(tensor), tensor)

    def changes(self, tensor: TensorBase, what: str) -> None:
        """Called when something of a tensor other than its elements will change."""
        if not self._is_new(tensor):
            self.prevent(f"changes {what} at {user_site()}")

    # --- gradients ----------------------------------------------------------------------------------------------

    def reads_grad(self, role: Leaf) -> None:
        """Called when a leaf's `.grad` is read. A replay may find another tensor there."""
        grad = role.grad
        if (
            self._is_inner_leaf(role)
            or id(role) in self.left
            or id(role) in self.held
            or (grad is not None and self.is_inside(grad._read()))
        ):
            return
        holder = self._holder_of(role)
        self.held[id(role)] = (holder, grad)
        if grad is not None:
            self._find_anew(grad, lambda arguments: holder(arguments).grad)

    def writes_grad(self, role: Leaf, *, reads: bool) -> None:
        """Called when a leaf's `.grad` will change; `reads` if the result depends on the present gradient."""
        if reads:
            self.reads_grad(role)
        self.left.setdefault(id(role), (self._holder_of(role), role, role.grad, reads))

    def _holder_of(self, role: Leaf) -> LeafLocator:
        for tensor in self._kept:
            if tensor._role is role:
                locator = self.locators[id(tensor)]
                return lambda arguments: _leaf_of(locator(arguments))
        return lambda _: role

    # --- everything else ----------------------------------------------------------------------------------------

    def draws(self, generator: Generator) -> tuple[Value, Value]:
        """The seed and number of a random draw, as inputs; every replay takes another draw."""
        seed, offset = map(number, generator.draw())
        self.drawn.append((generator, seed, offset))
        return seed, offset

    def lift(self, value: Value, getter: Callable[[], float]) -> None:
        """Make a number an input, which every replay reads anew by `getter`."""
        self.sources[value] = partial(_lifted, getter)

    def called(self, *things: object) -> None:
        """Called when a module runs: for a replay, everything that its call reads must be unchanged."""
        for thing in things:
            if thing not in self.snapshot:
                self._reach(thing, type(thing).__name__)

    def stepped(self, depends_on: Callable[[], Result], *things: object) -> None:
        """Called for an optimizer's step.

        A replay is valid while `depends_on` returns an equal result, and `things` contain the same objects. It has made
        the step in the end, so signals need not wait for it any longer.
        """
        self.repeats(uninterrupted.end_extension)
        self.depends(things[0], "an optimizer", depends_on)
        for thing in things:
            self._reach(thing, "optimizer.state")

    def depends(self, thing: object, name: str, depends_on: Callable[[], Result]) -> None:
        """Called before the function reads state of an object of this package that the snapshot does not cover.

        A replay is valid while `depends_on` returns an equal result. Only the first call for an object counts: later
        ones may find what the function itself has changed.
        """
        if id(thing) not in self.keys:
            self.keys[id(thing)] = name, depends_on, depends_on()

    def repeats(self, effect: Callable[[], object]) -> None:
        """Let every replay call `effect()`, for such state that the function changes."""
        self.repeated.append(effect)

    @property
    def defers(self) -> bool:
        """Whether calls of functions that are no operators are deferred, as replays can make them again."""
        return not self.prevented

    def defer(
        self, function: Callable[[Sequence[Value]], Sequence[Arg]], inputs: Sequence[Value], avals: Sequence[Aval]
    ) -> list[Value]:
        """The results, of these types, of a function that gives arrays for the values `inputs`.

        It is called once the captured function has ended, or needs a value, and again by each replay: so often as the
        captured function would call it, and in this order, whether or not somebody reads the results. It must refer to
        no tensors.
        """
        outputs = tuple([Value(aval, Absent(self._make_calls_here)) for aval in avals])
        call = DeferredCall(len(self.region), function, tuple(inputs), outputs)
        self.calls.append(call)
        self._waiting.append(call)
        for value in outputs:
            self.creates_leaf(value)
        with using(grad=False):
            return [apply(call_of(TABLE["detach"], (ONE,)), (value,))[0] for value in outputs]

    @property
    def operands(self) -> Iterator[Value]:
        """The arguments of all deferred calls, which refer to them."""
        return (value for call in self.calls for value in call.inputs)

    def make_calls(self, destination: Pending) -> None:
        """Make the calls that have been deferred. What was recorded before each is moved to `destination` before it."""
        calls, self._waiting = self._waiting, []
        if not calls:
            return
        later = self.region[::-1]  # and dropped one by one, since what is referred to is kept
        self.region.clear()
        self.region.moved(-len(later))
        self._counted = moved = 0
        try:
            for at, call in enumerate(calls):
                before = call.position - moved
                while moved < call.position:
                    destination.append(later.pop())
                    moved += 1
                destination.moved(before)
                try:
                    with uninterrupted:  # else the result of what others have taken part in would be lost
                        call.make()
                except BaseException as error:
                    for one in calls[at:]:
                        one.fail(error)
                    later.clear()  # computed only for who reads them, as others would meet this error
                    raise
        finally:
            later.reverse()
            self.region.extend(later)
            self.region.moved(len(later))

    def _make_calls_here(self) -> None:
        self.make_calls(self.region)

    def _reach(self, thing: object, label: str) -> None:
        """Add an object that the function uses to the snapshot; the function may have created it."""
        count = len(self.snapshot.tensors)
        self.snapshot.add(thing, label)
        new = islice(self.snapshot.tensors.items(), count, None)
        self._created.update([key for key, x in new if x._value is not None and self.is_inside(x._value)])

    def user_derivative(self, name: str) -> None:
        """Called when an `autograd.Function` is applied. If gradients flow through it, the capture is discarded."""

    def needs_elements(self, value: Value, *, decides: bool = False) -> None:
        """The function reads a value; `decides` if Python's control flow depends on it."""
        del value, decides
        self.needs_value()

    def needs_value(self, what: str = "a tensor's value", advice: str = "") -> None:
        """Called when the function reads a value, or communicates: later results may depend on it."""
        del advice  # none is needed to run uncaptured
        self.prevent(f"needs {what} at {user_site()}")
        self._make_calls_here()  # which the function has made before

    def prevent(self, why: str) -> None:
        """Note the reason why there can be no replay."""
        self.prevented = self.prevented or why

    # --- at the end ---------------------------------------------------------------------------------------------

    def new_grads(self) -> list[tuple[LeafLocator, Leaf]]:
        """The leaves whose `.grad` a replay sets; leaves created by the function that nobody holds are left out."""
        changed = [(h, role) for h, role, before, reads in self.left.values() if not reads or role.grad is not before]
        return [(holder, role) for holder, role in changed if not self._is_inner_leaf(role)]

    def _is_inner_leaf(self, role: Leaf) -> bool:
        if role.owner is None:
            return False
        owner = role.owner()
        return owner is None or self._is_new(owner)

    def trains_what_it_wrote(self) -> bool:
        """Whether gradients still flow to a new value of a written leaf. A replay passes them to its inputs only."""
        tapes = {id(v): v.role for v in self.region if isinstance(v.role, Leaf)}
        new = {key for key, role in tapes.items() if not self._is_inner_leaf(role)}
        return bool(new) and any(id(x) in new for value in self.region if is_taped(value) for x in value.inputs)


def _leaf_of(tensor: TensorBase) -> Leaf:
    """The `Leaf` in which a leaf accumulates its gradient."""
    if tensor._role is None:
        tensor._role = Leaf()
    return tensor._role
