"""What a function touches while it is captured, and where a replay finds it again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

from weft._base.site import user_site
from weft._base.state import Pending
from weft._lazy.tape import Tape
from weft._lazy.value import Value, is_taped
from weft._tensor.base import TensorBase
from weft._tensor.compile.kinds import kind_of
from weft._tensor.compile.snapshot import Snapshot
from weft._tensor.generator import Generator
from weft._tensor.scalar import number
from weft._tensor.tensor import Tensor

Arguments = Sequence[Tensor]
Locator = Callable[[Arguments], TensorBase]
"""Finds a tensor, given the call's tensor arguments."""
TapeLocator = Callable[[Arguments], Tape]
"""Finds the `Tape` in which a leaf collects its gradient."""


class Capture:
    """What a function touched while it was recorded: the ambient `capture` while it runs.

    region    the values that it recorded
    locators  of the tensors that a replay finds anew: arguments, gradients from outside, and what they are views of
    state     the other tensors that it read
    kinds     of the tensors that were there, by identity
    same      pairs of inputs that were one value
    written   tensors from outside that got a new value in place
    held      leaves whose `.grad` it looked at, and that gradient
    left      leaves whose `.grad` it changed, that gradient before, and whether that mattered
    drawn     generators, and the two numbers of each draw
    prevented what speaks against a replay, or ""
    """

    def __init__(self, arguments: Arguments, snapshot: Snapshot) -> None:
        self.region = Pending()
        self.region.limit = sys.maxsize
        self.snapshot = snapshot
        self.sources: dict[Value, Callable[..., Any]] = {}
        self.locators: dict[int, Locator] = {}
        self.state: dict[int, TensorBase] = {}
        self.kinds: dict[int, Any] = {}
        self.same: list[tuple[Any, Any]] = []
        self.written: dict[int, TensorBase] = {}
        self.held: dict[int, tuple[TapeLocator, TensorBase | None]] = {}
        self.left: dict[int, tuple[TapeLocator, Tape, TensorBase | None, bool]] = {}
        self.optimizers: dict[int, tuple[Callable[[], Any], Any]] = {}
        self.drawn: list[tuple[Generator, Value, Value]] = []
        self.prevented = ""
        self._kept: list[TensorBase] = list(arguments)  # alive, so that an identity stands for one tensor
        self._inside: set[int] = set()  # identities: references would make values look as if they were held
        self._leaves: list[Value] = []
        self._counted = 0
        self._created: set[int] = set()  # identities of tensors in the snapshot that the function has made
        for key, tensor in snapshot.tensors.items():
            self.kinds[key] = kind_of(tensor)
        for at, tensor in enumerate(arguments):
            self._find_anew(tensor, itemgetter(at))

    # --- tensors ------------------------------------------------------------------------------------------------

    def is_inside(self, value: Value) -> bool:
        """Whether the function has made a value."""
        region = self.region
        if self._counted < len(region):
            self._inside.update([id(v) for v in region[self._counted :]])
            self._counted = len(region)
        return id(value) in self._inside

    def creates_leaf(self, value: Value) -> None:
        """The function makes a leaf of elements that Python has; the snapshot knows where those come from."""
        self._inside.add(id(value))
        self._leaves.append(value)

    def read(self, tensor: TensorBase, value: Value) -> None:
        """An operator reads a tensor."""
        key = id(tensor)
        if key not in self.locators and key not in self.state and not self.is_inside(value):
            self.state[key] = tensor
            self.kinds[key] = kind_of(tensor)
            self._comes_from(value, lambda _: tensor._read())
            if tensor._alias is not None:
                base = tensor._alias.base
                self.read(base, base._read())

    def _comes_from(self, value: Value, source: Callable[[Arguments], Value]) -> None:
        first = self.sources.setdefault(value, source)
        if first is not source:
            self.same.append((first, source))

    def _find_anew(self, tensor: TensorBase, locator: Locator) -> None:
        """Have a replay find a tensor by its locator, and from it what it is a view of."""
        if id(tensor) in self.locators:
            return
        self.locators[id(tensor)] = locator
        self.kinds[id(tensor)] = kind_of(tensor)
        self._kept.append(tensor)
        self._comes_from(tensor._read(), lambda arguments: locator(arguments)._read())
        alias = tensor._alias
        if alias is None:
            return
        self._find_anew(alias.base, lambda arguments: locator(arguments)._alias.base)  # pyright: ignore[reportOptionalMemberAccess]
        for at, (_, others) in enumerate(alias.steps):
            for i, value in enumerate(others):
                self._comes_from(value, lambda arguments, at=at, i=i: locator(arguments)._alias.steps[at][1][i])  # pyright: ignore[reportOptionalMemberAccess]

    def locator_of(self, tensor: TensorBase) -> Locator:
        """Where a replay finds a tensor from outside."""
        return self.locators.get(id(tensor)) or (lambda _: tensor)

    def is_outside(self, tensor: TensorBase) -> bool:
        """Whether a tensor was there before the function ran."""
        key = id(tensor)
        if any(key in table for table in (self.locators, self.state, self.written)):
            return True
        return key in self.snapshot.tensors and key not in self._created

    def wrote(self, tensor: TensorBase, old: Value) -> None:
        """A tensor got a new value in place. Those that the function has made do not count."""
        if not self.is_inside(old):
            self.written.setdefault(id(tensor), tensor)

    def changes(self, tensor: TensorBase, what: str) -> None:
        """A tensor is about to change in another way than by its elements."""
        if id(tensor) in self.written or not self.is_inside(tensor._read()):
            self.prevent(f"changes {what} at {user_site()}")

    # --- gradients ----------------------------------------------------------------------------------------------

    def reads_grad(self, tape: Tape) -> None:
        """A leaf's `.grad` is looked at. What a replay finds there may be another tensor."""
        grad = tape.grad
        if (
            self._is_inner_leaf(tape)
            or id(tape) in self.left
            or id(tape) in self.held
            or (grad is not None and self.is_inside(grad._read()))
        ):
            return
        holder = self._holder_of(tape)
        self.held[id(tape)] = (holder, grad)
        if grad is not None:
            self._find_anew(grad, lambda arguments: holder(arguments).grad)

    def writes_grad(self, tape: Tape, *, reads: bool) -> None:
        """A leaf's `.grad` is about to change; `reads` where the outcome depends on what it is now."""
        if reads:
            self.reads_grad(tape)
        self.left.setdefault(id(tape), (self._holder_of(tape), tape, tape.grad, reads))

    def _holder_of(self, tape: Tape) -> TapeLocator:
        for tensor in self._kept:
            if tensor._tape is tape:
                locator = self.locators[id(tensor)]
                return lambda arguments: _tape_of(locator(arguments))
        return lambda _: tape

    # --- everything else ----------------------------------------------------------------------------------------

    def draws(self, generator: Generator) -> tuple[Value, Value]:
        """A random operator takes a draw; every replay takes another one."""
        seed, offset = map(number, generator.draw())
        self.drawn.append((generator, seed, offset))
        return seed, offset

    def lift(self, value: Value, getter: Callable[[], Any]) -> None:
        """A number that every replay reads anew."""
        self.sources[value] = lambda _: number(getter())

    def called(self, *things: Any) -> None:
        """A module runs: a replay needs what its call reads to be unchanged."""
        for thing in things:
            if thing not in self.snapshot:
                self._reach(thing, type(thing).__name__)

    def stepped(self, depends_on: Callable[[], Any], *things: Any) -> None:
        """An optimizer steps; a replay holds while `depends_on` says the same, and `things` hold the same objects."""
        self.optimizers.setdefault(id(things[0]), (depends_on, depends_on()))
        for thing in things:
            self._reach(thing, "optimizer.state")

    def _reach(self, thing: Any, label: str) -> None:
        """Add an object that the function uses, and may have made, to the snapshot."""
        count = len(self.snapshot.tensors)
        self.snapshot.add(thing, label)
        new = islice(self.snapshot.tensors.items(), count, None)
        self._created.update([key for key, x in new if x._value is not None and self.is_inside(x._value)])

    def user_derivative(self, name: str) -> None:
        """An `autograd.Function` is applied; if gradients flow through it, the capture is thrown away in the end."""

    def needs_value(self, what: str = "a tensor's value") -> None:
        """The function looks at a value, or meets other processes: what follows may depend on it."""
        self.prevent(f"needs {what} at {user_site()}")

    def prevent(self, why: str) -> None:
        """There can be no replay, because of what the function does."""
        self.prevented = self.prevented or why

    # --- at the end ---------------------------------------------------------------------------------------------

    def new_grads(self) -> list[tuple[TapeLocator, Tape]]:
        """The leaves whose `.grad` a replay sets: not those of leaves that the function has made and nobody holds."""
        changed = [(h, tape) for h, tape, before, reads in self.left.values() if not reads or tape.grad is not before]
        return [(holder, tape) for holder, tape in changed if not self._is_inner_leaf(tape)]

    def _is_inner_leaf(self, tape: Tape) -> bool:
        if tape.owner is None:
            return False
        owner = tape.owner()
        return owner is None or (self.is_inside(owner._read()) and id(owner) not in self.written)

    def trains_what_it_wrote(self) -> bool:
        """Whether gradients still flow to the new value of a written leaf. A replay passes them to its inputs only."""
        values = [tensor._read() for tensor in self.written.values()]
        new = {id(value) for value in values if value.tape is not None and value.tape.leaf}
        return any(id(x) in new for value in self.region if is_taped(value) for x in value.inputs)


def _tape_of(tensor: TensorBase) -> Tape:
    """The record in which a leaf collects its gradient."""
    if tensor._tape is None:
        tensor._tape = Tape(leaf=True)
    return tensor._tape
