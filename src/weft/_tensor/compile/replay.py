"""A captured call: its operators, the origin of their inputs, and the destination of their outputs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft._base.interrupts import uninterrupted
from weft._base.state import ambient
from weft._base.types import Arg, Result
from weft._lazy.external import taken_in
from weft._lazy.flushing import flush
from weft._lazy.role import Leaf
from weft._lazy.value import Value, is_taped
from weft._tensor.alias import owner_of
from weft._tensor.base import Alias, TensorBase
from weft._tensor.compile.capture import Arguments, FunctionCapture, Locator
from weft._tensor.compile.kinds import kind_of, sharing
from weft._tensor.compile.stages import Stages
from weft._tensor.compile.structure import rebuild
from weft._tensor.scalar import number
from weft._tensor.tensor import Tensor, wrap
from weft._tensor.view import attach, set_value

Reference = tuple[int, int]
"""A tensor of a replay: (0, n) is the n-th that exists before it, (1, n) the n-th that it creates."""
Find = Callable[[Sequence[Value], Arguments], Value]


@dataclass(frozen=True, slots=True)
class _Maker:
    """How to create a tensor that the function has created.

    output   the number of the output that is its value
    leaf     whether it is a leaf that accumulates a gradient; `grad` is the gradient that it already has
    base     the base, if it is a view, with the path `steps`; `tracked` is as in `Alias`
    """

    output: int
    leaf: bool
    grad: Reference | None
    base: Reference | None
    steps: tuple[tuple[Arg, tuple[Find, ...]], ...]
    tracked: bool

    def make(
        self, outputs: Sequence[Value], arguments: Arguments, tables: tuple[Sequence[TensorBase], list[Tensor]]
    ) -> Tensor:
        """The tensor, given the outputs, and the tables of existing and created tensors."""
        value = outputs[self.output]
        tensor = wrap(value)
        if self.leaf:
            tensor._role = value.role = Leaf()
            tensor._role.owner = weakref.ref(tensor)
            if self.grad is not None:
                tensor._role.grad = tables[self.grad[0]][self.grad[1]]
        if self.base is not None:
            base = tables[self.base[0]][self.base[1]]
            path = tuple([(call, tuple([find(outputs, arguments) for find in others])) for call, others in self.steps])
            attach(tensor, Alias(base, path, self.tracked))
        return tensor


class _Outputs:
    """Collects the values that a replay computes, and the tensors that it creates from them."""

    def __init__(self, capture: FunctionCapture) -> None:
        self._capture = capture
        self.values: list[Value] = []
        self.locators: list[Locator] = []
        self.makers: list[_Maker] = []
        self._numbers: dict[Value, int] = {}
        self._references: dict[int, Reference] = {}

    def number(self, value: Value) -> int:
        """The number of the output for a value."""
        if value not in self._numbers:
            self._numbers[value] = len(self.values)
            self.values.append(value)
        return self._numbers[value]

    def refer(self, tensor: TensorBase) -> Reference:
        """The reference with which a replay finds or creates a tensor."""
        key = id(tensor)
        if key not in self._references:
            if self._capture.is_outside(tensor):
                self._references[key] = (0, len(self.locators))
                self.locators.append(self._capture.locator_of(tensor))
            else:
                maker = self._maker(tensor)
                self._references[key] = (1, len(self.makers))
                self.makers.append(maker)
        return self._references[key]

    def _maker(self, tensor: TensorBase) -> _Maker:
        value, alias = taken_in(tensor._read()), tensor._alias
        capture = self._capture
        if type(tensor) is not Tensor:
            capture.prevent(f"returns a {type(tensor).__name__} that it has made, which a replay cannot")
        capture.read(tensor, value)  # one of unknown origin is read anew
        leaf = value.role if isinstance(value.role, Leaf) else None
        grad = None if leaf is None else leaf.grad
        return _Maker(
            output=self.number(value),
            leaf=leaf is not None,
            grad=None if grad is None else self.refer(grad),
            base=None if alias is None else self.refer(alias.base),
            steps=()
            if alias is None
            else tuple([(call, tuple([self._find(x) for x in others])) for call, others in alias.steps]),
            tracked=alias is not None and alias.tracked,
        )

    def _find(self, value: Value) -> Find:
        source = self._capture.sources.get(value)
        if source is not None:
            return lambda _, arguments: source(arguments)
        if not value.is_pending:
            return lambda _, __: value
        at = self.number(value)
        return lambda outputs, _: outputs[at]


class Replay:
    """One captured call: what computes it, the origin of its inputs, and the destination of its outputs."""

    def __init__(
        self, capture: FunctionCapture, arguments: Arguments, results: Sequence[Tensor], picture: object, name: str
    ) -> None:
        left = _Outputs(capture)
        self._picture = picture
        self._results = [left.refer(tensor) for tensor in results]
        self._written = [
            (left.refer(t), left.number(taken_in(t._read())), _is_leaf(t)) for t in capture.written.values()
        ]
        grads = capture.new_grads()
        self._grads = [(holder, None if role.grad is None else left.refer(role.grad)) for holder, role in grads]
        self._locators, self._makers = left.locators, left.makers
        self._stages = Stages(left.values, capture.region, capture.calls, name)
        inputs = self._stages.inputs
        if _loses_gradients(left, capture.region, inputs):
            capture.prevent("leaves gradients to leaves that it has made, which a replay cannot")
        self._generators = [generator for generator, _, _ in capture.drawn]
        self._sources = [capture.sources.get(x) or _constant(x, capture) for x in inputs]
        places = {x: at for at, x in enumerate(inputs)}
        drawn = [x for _, *numbers in capture.drawn for x in numbers]
        self._draws = [(places[x], n) for n, x in enumerate(drawn) if x in places]
        self._guard(capture, arguments)

    def _guard(self, capture: FunctionCapture, arguments: Arguments) -> None:
        """Store what must be unchanged for a replay."""
        tensors = {**capture.snapshot.tensors, **capture.state}
        for key in [key for key in tensors if key in capture.locators]:
            del tensors[key]
        self._state = [(t, t._alias, capture.kinds.get(key) or kind_of(t)) for key, t in tensors.items()]
        written = [tensor for key, tensor in capture.written.items() if key not in capture.locators]
        outside = [*capture.snapshot.tensors.values(), *capture.state.values(), *written]
        self._outside = {id(owner_of(tensor)): owner_of(tensor) for tensor in outside}
        self._snapshot = capture.snapshot
        self._keys = list(capture.keys.values())
        self._repeated = capture.repeated
        self._same = capture.same
        held = capture.held.values()
        self._held = [(holder, None if grad is None else capture.kinds[id(grad)]) for holder, grad in held]
        self._sharing = sharing([*arguments, *[g for _, g in held if g is not None]], self._outside)

    def difference(self, arguments: Arguments) -> str:
        """What has changed since the capture, as a text, or ""."""
        for tensor, alias, kind in self._state:
            if tensor._alias is not alias or kind_of(tensor) != kind:
                return f"the type of a tensor of shape {list(tensor._read().aval.size)}"
        for name, depends_on, before in self._keys:
            if depends_on() != before:
                return name
        grads = [holder(arguments).grad for holder, _ in self._held]
        if any((None if g is None else kind_of(g)) != kind for g, (_, kind) in zip(grads, self._held, strict=True)):
            return "whether there are gradients, or their type"
        if sharing([*arguments, *[g for g in grads if g is not None]], self._outside) != self._sharing:
            return "which tensors share storage"
        if any(one(arguments) is not other(arguments) for one, other in self._same):
            return "which tensors have one value"
        changed = self._snapshot.difference()
        return changed and f"`{changed}`"

    def run(self, arguments: Arguments) -> Result:
        """Record the operators with the current values, and distribute their outputs.

        Either all tensors that the function writes get their new values, or none, whatever signals come.
        """
        with uninterrupted:
            return self._recorded(arguments)

    def _recorded(self, arguments: Arguments) -> Result:
        state = ambient()
        drawn = [number(x) for generator in self._generators for x in generator.draw()]  # also draws that nobody uses
        inputs = [source(arguments) for source in self._sources]
        for at, n in self._draws:
            inputs[at] = drawn[n]
        outside = [locator(arguments) for locator in self._locators]
        outputs = self._stages.run(inputs)
        for (_, n), at, leaf in self._written:
            if leaf:
                outputs[at].role = outside[n]._read().role
            set_value(outside[n], outputs[at])
        tables: tuple[Sequence[TensorBase], list[Tensor]] = (outside, [])
        for maker in self._makers:
            tables[1].append(maker.make(outputs, arguments, tables))
        for holder, grad in self._grads:
            holder(arguments).grad = None if grad is None else tables[grad[0]][grad[1]]
        for effect in self._repeated:
            effect()
        if self._written:  # the end of a step
            flush(state.pending)
        return rebuild(self._picture, iter([tables[table][n] for table, n in self._results]))


def _loses_gradients(left: _Outputs, region: Sequence[Value], inputs: Sequence[Value]) -> bool:
    """Whether gradients should flow to leaves created by the function: a replay passes them only to its inputs."""
    if any(map(is_taped, left.values)) and all(x.role is None for x in inputs):
        return True
    leaves = {left.values[maker.output] for maker in left.makers if maker.leaf}
    return bool(leaves) and any(x in leaves for value in region if is_taped(value) for x in value.inputs)


def _is_leaf(tensor: TensorBase) -> bool:
    role = tensor._read().role
    return isinstance(role, Leaf)


def _constant(value: Value, capture: FunctionCapture) -> Callable[[Arguments], Value]:
    if not (value.aval.weak or capture.is_inside(value)):
        capture.prevent(f"uses a tensor of type {value.aval} in a way that cannot be followed")
    return lambda _: value
