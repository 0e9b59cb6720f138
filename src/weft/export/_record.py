"""Recording a function for export: what it computes from its inputs and its state, and which state it changes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from jax.extend.core import ClosedJaxpr

from weft._base.site import user_site
from weft._base.state import Pending, ambient, using
from weft._base.types import AnyCallable, Arg, Result
from weft._dispatch import apply
from weft._interop.trace import TensorTrace
from weft._lazy.aval import Aval, aval_of, in_memory
from weft._lazy.call import ONE
from weft._lazy.infer import call_of
from weft._lazy.outline import form_of, outline
from weft._lazy.reading import array_of
from weft._lazy.role import Leaf, Role
from weft._lazy.value import Value
from weft._tensor.alias import owner_of
from weft._tensor.generator import Generator as RandomGenerator
from weft._tensor.generator import default_generator
from weft._tensor.scalar import number
from weft._tensor.tensor import Tensor, wrap
from weft._tensor.view import set_value
from weft.errors import CompileError, NeedsValueError, ProgramError
from weft.export._graph import Application, applications
from weft.export._state import NamedState, Stepper
from weft.export._structure import Structure, flatten
from weft.nn._module import Module
from weft.ops._table import TABLE
from weft.optim._optimizer import Optimizer

_ADVICE = (
    "use operators such as where() in place of Python's control flow, compute it outside of the function and pass it "
    "as an argument, or return it"
)

GENERATOR = "generator"
"""The name in the state of the random generator's (seed, number of the next draw)."""


@dataclass(frozen=True)
class InputSource:
    """Where an input of the recorded computation comes from.

    kind   "state", "input", "option" (a number of an optimizer), "seed", "draw", "number", "constant"
    key    the name in the state, the number of the input or of the draw, the number, or the array
    """

    kind: str
    key: Any
    aval: Aval


@dataclass(frozen=True)
class ProgramRecording:
    """What a function has recorded.

    closed           the operators, as a jaxpr; the results are the outputs, then the new values of `changed`
    sources          where the jaxpr's inputs come from
    outputs          the structure of the result
    count            the number of outputs
    changed          the names of the state that the function writes
    draws            how many random draws it takes
    applications     the operators, for the graph that a program shows
    leaves, results  the numbers of the values that this graph reads and returns
    """

    closed: ClosedJaxpr
    sources: tuple[InputSource, ...]
    outputs: Structure
    count: int
    changed: tuple[str, ...]
    draws: int
    applications: tuple[Application, ...]
    leaves: tuple[int, ...]
    results: tuple[int, ...]


class ExportTrace(TensorTrace):
    """The ambient `capture` while a function is recorded for export."""

    exports = True

    def __init__(self, name: str, state: NamedState) -> None:
        super().__init__(name, None)
        self._state = state
        self.options: dict[Value, tuple[str, float]] = {}
        self.draw_sources: dict[Value, tuple[str, int]] = {}
        self._new_leaves: list[Value] = []
        self._steppers: list[Stepper] = []
        self._attributes = state.attributes()

    def draws(self, generator: RandomGenerator) -> tuple[Value, Value]:
        """The (seed, offset) of a random operator: from the state, so that every run draws other numbers."""
        if generator is not default_generator:
            raise CompileError(
                f"{self.name}: it draws from a generator of its own at {user_site()}; an exported program draws from "
                "the default generator, so leave out `generator=`"
            )
        at = len(self.draw_sources) // 2
        seed, offset = number(0), number(at)
        self.draw_sources[seed] = ("seed", at)
        self.draw_sources[offset] = ("draw", at)
        return seed, offset

    def lift(self, value: Value, getter: Callable[[], Arg]) -> None:
        """Make a number of an optimizer state of the program, so that a schedule can change it."""
        name = self._state.option_name(getter)
        if name is not None:
            self.options[value] = (name, float(getter()))

    def creates_leaf(self, value: Value) -> None:
        """Note that the function makes a tensor from Python's data."""
        self._new_leaves.append(value)

    def stepped(self, depends_on: Callable[[], object], *things: object) -> None:
        """Keep an optimizer as it is before its step, unless it is state of the program or made by the function."""
        del things
        optimizer = getattr(depends_on, "__self__", None)
        if not isinstance(optimizer, Optimizer) or optimizer._is_made_in(self):  # pyright: ignore[reportPrivateUsage]  as other names are the user's
            return
        optimizers = (*self._state.optimizers.values(), *[one.optimizer for one in self._steppers])
        if all(optimizer is not one for one in optimizers):
            self._steppers.append(Stepper(optimizer))

    def steppers_with_new_state(self) -> list[Optimizer]:
        """The optimizers from outside, other than those in the state, whose step has made new state."""
        return [one.optimizer for one in self._steppers if one.new_state()]

    def called(self, *things: object) -> None:
        """Note that a module runs, to undo what it assigns to its attributes, whether or not it is in the state."""
        if isinstance(things[0], Module):
            self._attributes.add(things[0])

    def keeping_attributes(self, region: Pending, run: Callable[[], object]) -> Result:
        """The result of `run`, after which all attributes of modules are as before.

        `ProgramError` if it assigns tensors to attributes that a program cannot write to.
        """
        kept = self._attributes
        try:
            result = run()
        finally:
            inside = {id(value) for value in (*region, *self._new_leaves)}
            kept.restore(lambda value: id(value) in inside)
        if kept.assigned:
            raise ProgramError(
                f"The tensor attribute self.{kept.assigned[0]} was assigned during export. Such attributes must be "
                "registered as buffers using the `register_buffer` API, keep their shape and dtype, and belong to a "
                "module that is exported or given as state."
            )
        return result

    def user_derivative(self, name: str) -> None:
        """An `autograd.Function` is applied: its backward pass is recorded like everything else."""

    def needs_elements(self, value: Value, *, decides: bool = False) -> None:
        """The function reads a value; `decides` if Python's control flow depends on it."""
        del value, decides
        self.needs_value()

    def needs_value(self, what: str = "a tensor's value", advice: str = "") -> None:
        """The function reads a value: `CompileError`, as there is none before the program runs."""
        raise NeedsValueError(
            f"{self.name}: it needs {what} at {user_site()}, and there is none while a function is exported; "
            f"{advice or _ADVICE}"
        )

    def restore(self, region: Pending) -> None:
        """Restore gradients, optimizers, and the values of tensors from outside that were written in place."""
        for tensor, old in self.written_outside(region):
            set_value(tensor, old)
        for role, before in self._grads.values():
            role.grad = before
        for stepper in self._steppers:
            kind = type(stepper.optimizer).__name__
            self._state.changed_numbers |= dict.fromkeys(stepper.changed_numbers(kind))
            stepper.restore()

    def has_written(self, tensor: Tensor) -> bool:
        """Whether a tensor was written in place."""
        return id(tensor) in self._written

    def written_outside(self, region: Pending) -> list[tuple[Tensor, Value]]:
        """The tensors that were written in place, and that the function has not made, with their values before."""
        inside = {id(value) for value in (*region, *self._new_leaves)}
        written = [(ref(), old) for ref, old in self._written.values() if id(old) not in inside]
        return [(tensor, old) for tensor, old in written if tensor is not None]


_ALIAS = call_of(TABLE["alias"], (ONE,))


class _PlaceholderArray:
    """Stands for the array of a placeholder. Reading it is an error, as it has no elements."""

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise ProgramError(
            "a tensor that was made while a function was exported has no value; return it from the function, or write "
            "to a buffer in place, instead of keeping it elsewhere"
        )


def record(
    function: AnyCallable,
    inputs: Sequence[tuple[Aval, bool]],
    rebuilt: Callable[[list[Tensor]], tuple[tuple[object, ...], dict[str, object]]],
    state: NamedState,
    name: str,
    names: Sequence[str],
) -> ProgramRecording:
    """Run a function on placeholders for its inputs (each a type, and whether it requires a gradient) and its state.

    Nothing is computed, and afterwards all tensors are as before. `rebuilt` makes args and kwargs from the tensors of
    the inputs, which have `names` in errors. `CompileError` if it reads a value, `ProgramError` if it writes to a
    tensor that is no state.
    """
    trace = ExportTrace(name, state)
    region = Pending(sys.maxsize, watched=False)
    sources: dict[int, tuple[str, Any]] = {}
    leaves: list[Value] = []

    def placeholder(aval: Aval, kind: str, key: object, role: Role | None) -> Value:
        leaf = Value(aval, _PlaceholderArray())
        leaves.append(leaf)  # keeps it alive, so that its id stays its own
        sources[id(leaf)] = (kind, key)
        # unlike the leaf, its alias can be written to, and has no array that a check could read
        value = apply(_ALIAS, (leaf,))[0]
        value.role = role
        return value

    modes = {"inference": False, "anomaly": False, "eager": False, "autocast": ambient().autocast.apart()}
    with state.preserved(), using(pending=region, capture=trace, **modes):
        before = {
            n: placeholder(in_memory(t._read().aval, False), "state", n, _leaf_tape(t))
            for n, t in state.tensors.items()
        }
        tensors = [
            wrap(placeholder(aval, "input", at, Leaf() if grad else None)) for at, (aval, grad) in enumerate(inputs)
        ]
        with _in_place(state, before):
            try:
                args, kwargs = rebuilt(list(tensors))
                results: list[Tensor] = []
                result = trace.keeping_attributes(region, lambda: function(*args, **kwargs))
                outputs = flatten(result, results, "the result")
                output_values = [result._read() for result in results]
                after = {n: tensor._read() for n, tensor in state.tensors.items()}
                _refuse_writes(trace, region, state, name)
                for argument, tensor in zip(names, tensors, strict=True):
                    if trace.has_written(tensor):
                        raise ProgramError(
                            f"{name}: it writes to its argument {argument!r}, and a program leaves its arguments as "
                            f"they are; return the new value, or write to {argument}.clone()"
                        )
            finally:
                trace.restore(region)
    changed = [n for n, value in after.items() if value is not before[n]]
    _refuse_shared(state, changed, name)
    results_and_state = [*output_values, *[after[n] for n in changed]]
    signature, needed = outline(results_and_state, region, f"export({name})")
    inside = {id(value) for value in region if value.is_pending}
    form, _, _ = form_of(results_and_state, lambda x: id(x) in inside)
    input_sources: list[InputSource] = []
    for value in needed:
        kind, key = sources.get(id(value)) or trace.draw_sources.get(value) or ("", None)
        if value in trace.options:
            kind, key = "option", trace.options[value]
        elif not kind:
            kind, key = ("number", value.number) if value.aval.weak else ("constant", array_of(value))
        input_sources.append(InputSource(kind, key, value.aval))
    draws = len(trace.draw_sources) // 2
    return ProgramRecording(
        signature.trace.closed, tuple(input_sources), outputs, len(output_values), tuple(changed), draws,
        applications(form), form.leaves, form.wanted,
    )  # fmt: skip


@contextmanager
def _in_place(state: NamedState, values: dict[str, Value]) -> Generator[None]:
    """Give the tensors of the state other values for the block, in which they are no views and have no `.grad`."""
    held = [(tensor, tensor._alias, tensor._read(), values[name]) for name, tensor in state.tensors.items()]
    grads = [(role, role.grad) for tensor in state.tensors.values() if (role := _leaf_tape(tensor)) is not None]
    for role, _ in grads:
        role.grad = None
    for tensor, _, _, value in held:
        tensor._alias = None
        set_value(tensor, value)
    try:
        yield
    finally:
        for tensor, alias, old, _ in held:
            set_value(tensor, old)
            tensor._alias = alias
        for role, grad in grads:
            role.grad = grad


def _leaf_tape(tensor: Tensor) -> Leaf | None:
    """The role that collects the gradient of a leaf; None for other tensors."""
    role = tensor._read().role
    return role if isinstance(role, Leaf) else None


def _refuse_writes(trace: ExportTrace, region: Pending, state: NamedState, name: str) -> None:
    for optimizer in trace.steppers_with_new_state():
        kind = type(optimizer).__name__
        raise ProgramError(
            f"{name}: it writes to a tensor from outside: the state of {kind}, which would begin anew in each call; "
            f"name the optimizer, as in export({name}, args, state={{'model': model, 'optimizer': optimizer}})"
        )
    own = {id(tensor) for tensor in state.tensors.values()}
    for tensor, _ in trace.written_outside(region):
        if id(tensor) not in own:
            raise ProgramError(
                f"{name}: it writes to a tensor of shape {list(tensor.shape)} from outside, which is neither an "
                "argument nor state; name what owns it, as in export(step, args, state={'model': model, 'optimizer': "
                "optimizer}), or register it as a buffer"
            )


def _refuse_shared(state: NamedState, changed: Sequence[str], name: str) -> None:
    owners: dict[int, list[str]] = {}
    for n, tensor in state.tensors.items():
        owners.setdefault(id(owner_of(tensor)), []).append(n)
    for names in owners.values():
        written = [n for n in names if n in changed]
        if written and len(names) > 1:
            raise ProgramError(
                f"{name}: it writes to {written[0]!r}, which shares its elements with "
                f"{next(n for n in names if n != written[0])!r}; an exported program shares nothing, so clone one"
            )


def with_shape(aval: Aval, shape: Sequence[int]) -> Aval:
    """The type with another shape."""
    return aval_of(tuple(shape), aval.dtype, device=aval.device)
