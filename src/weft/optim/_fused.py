"""The base of optimizers that update each group by one application of a row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, islice, pairwise
from math import inf, isnan
from typing import TYPE_CHECKING, Any, ClassVar

from weft._base.capture import active_capture
from weft._base.device import device
from weft._base.dtype import DType, float32, float64
from weft._base.interrupts import uninterrupted
from weft._base.state import ambient, default_dtype, using
from weft._base.types import Arg, Result, SavedState
from weft._dispatch import apply
from weft._lazy.aval import aval_of, in_memory, named
from weft._lazy.call import ONE, many
from weft._lazy.infer import call_of
from weft._lazy.runtime import new_array
from weft._lazy.value import Value
from weft._tensor.alias import layout_of, owner_of
from weft._tensor.leaf import leaf
from weft._tensor.scalar import number
from weft._tensor.tensor import Tensor, operand, wrap
from weft._tensor.view import replace_value, write
from weft.errors import OptionError, UnsupportedCallError, ValueRangeError
from weft.ops._kinds import Kind
from weft.ops._table import OpDef
from weft.ops.optimizer_scaling import kept_where
from weft.optim._optimizer import Group, Optimizer, Params
from weft.optim._sparse_steps import refusal

if TYPE_CHECKING:
    from weft.optim._optimizer import Closure

Start = float | tuple[float, tuple[int, ...]]
"""A parameter's state before the first step: a number everywhere, with a shape if it is not the parameter's."""

Numbers = dict[str, Value | None]
"""Options of a group as operands, by the names of the row's parameters."""


class FusedOptimizer(Optimizer):
    """An optimizer defined by its options, the state of a parameter before its first step (`_fresh`), and one row.

    Everything else follows from the row's parameters. Its first two lists are parameters and gradients. Its other lists
    are state, found by name; those in `_counters` are step counts, which equally old parameters share. Its numbers are
    options of the same name, or the part of an option given by `_parts`. Its keyword parameters are options that are
    constants of the program. It returns the new parameters and all new state, in its own order.
    """

    _row: ClassVar[OpDef]
    _fresh: ClassVar[dict[str, float]] = {}
    _counters: ClassVar[tuple[str, ...]] = ("step",)
    _parts: ClassVar[dict[str, tuple[str, int]]] = {"beta1": ("betas", 0), "beta2": ("betas", 1)}
    _columns: ClassVar[tuple[str, ...]]
    _numbers: ClassVar[tuple[tuple[str, str, int | None], ...]]  # name in the row; name of the option; index in it
    _switches: ClassVar[tuple[str, ...]]
    _sparse_refusal: ClassVar[str] = (
        ""  # what PyTorch calls an optimizer that refuses sparse gradients, if not its name
    )

    def __init_subclass__(cls, **kwargs: Arg) -> None:
        super().__init_subclass__(**kwargs)
        params = cls._row.params
        lists = [param.name for param in params if param.kind is Kind.ARRAYS]
        cls._columns = tuple(name for name in lists[2:] if name not in cls._counters)
        numbers = [param.name for param in params if param.kind is Kind.SCALAR]
        parts = [(name, *cls._parts[name]) if name in cls._parts else (name, name, None) for name in numbers]
        cls._numbers = tuple(parts)
        cls._switches = tuple(param.name for param in params if param.keyword_only and param.name != "age")
        # a user's own step may do more than update parameters; one that does not says so
        cls._skips_steps = vars(cls).get("_skips_steps", cls.step is FusedOptimizer.step)

    def __init__(self, params: Params, defaults: Group) -> None:
        if defaults.get("fused") and defaults.get("differentiable"):
            raise OptionError("`fused` does not support `differentiable`")
        if defaults.get("fused") and defaults.get("foreach"):
            raise OptionError("`fused` and `foreach` cannot be `True` together.")
        super().__init__(params, defaults)

    def __setstate__(self, state: SavedState) -> None:
        super().__setstate__(state)
        shared: dict[Any, Value] = {}  # counters that were shared are shared again, so the program stays the same
        for param, entry in self.state.items():
            for name in self._counters:
                if name in entry:
                    count = entry[name]  # older state dicts have Python numbers
                    value = count._read() if isinstance(count, Tensor) else _counter(count, param.device)
                    entry[name] = wrap(shared.setdefault((value.aval, float(count)), value))

    # --- for subclasses ---------------------------------------------------------------------------------------

    def _starts(self, group: Group, param: Tensor) -> Mapping[str, Start]:
        """State before the first step: numbers, or (number, shape) if the shape is not the parameter's."""
        del group, param
        return self._fresh

    def _needed_shapes(self, group: Group, param: Tensor) -> dict[str, tuple[int, ...]]:
        if not self._skips_steps:  # overridden by a user, whose state may have other shapes
            return {}
        starts = self._starts(group, param)
        return {
            name: start[1] if isinstance(start := starts.get(name), tuple) else tuple(param.shape)
            for name in self._columns
        }

    def _kind(self, param: Tensor) -> Hashable:
        """A key: only parameters with equal keys are updated by one application."""
        del param

    # --- stepping ---------------------------------------------------------------------------------------------

    def step(self, closure: Closure | None = None) -> Result:
        """Update all parameters that have a gradient; returns the result of `closure`, which computes the gradients.

        Everything pending is computed together with the update, as one program. NaN in an option raises before anything
        changes. With `differentiable` the update is recorded on the tape.
        """
        loss = evaluated(closure)
        # The parameters and all state are of one step, whatever signals come: half a step would be another model.
        with uninterrupted, using(grad=bool(self.defaults.get("differentiable"))):
            due = [(group, [p for p in group["params"] if p.grad is not None]) for group in self.param_groups]
            for group, params, numbers in [(g, params, self._read(g)) for g, params in due if params]:
                for together in by_device(params, self._kind):
                    self._update(group, together, numbers)
        return loss

    def _read(self, group: Group) -> Numbers:
        """The row's numbers. Replays of a captured step read them from the group again."""
        numbers: Numbers = {}
        capture = active_capture()
        for name, option, at in self._numbers:
            value = group[option] if at is None else group[option][at]
            if isinstance(value, Tensor):
                numbers[name] = operand(value)
            elif value is None:
                numbers[name] = None
            else:
                read = partial(_checked, group, option, at)
                numbers[name] = value = number(read())
                capture.lift(value, read)
        return numbers

    def _update(self, group: Group, params: Sequence[Tensor], numbers: Numbers) -> None:
        """Record one application, and set the new parameters and the new state."""
        names, states = self._begin(group, params)
        columns = [[state[name] for state in states] if name in names else [] for name in self._columns]
        targets = [params, *columns]
        old_params, *old_columns = [_values(tensors) for tensors in targets]
        steps, ages = self._steps(states)
        lists = [old_params, _values([param.grad for param in params]), *old_columns, *steps]
        static = (
            *[many(len(values)) for values in lists],
            *[None if value is None else ONE for value in numbers.values()],
            *[group[name] for name in self._switches],
            *([ages] if self._counters else ()),
        )
        inputs = (*chain(*lists), *[value for value in numbers.values() if value is not None])
        try:
            new = apply(call_of(self._row, static), inputs)
        except UnsupportedCallError as error:
            raise refusal(self._sparse_refusal or type(self).__name__) from error
        # A scaler's skip is a choice within the program, so that no step waits for the number.
        for found_inf in (x for x in self._found_inf if x.device == params[0].device):
            old = [*chain(old_params, *old_columns, *steps)]
            n = many(len(old))
            new = apply(call_of(kept_where, (ONE, n, n)), (operand(found_inf), *old, *new[: len(old)]))
        # With `differentiable` the step is on the tape; otherwise parameters get their new values without a version of
        # the graph.
        put = write if ambient().grad else replace_value
        values = iter(new)
        for target, value in zip(chain(*targets), values, strict=False):
            put(target, value)
        for name, counts in zip(self._counters, steps, strict=True):
            new_counts = [*islice(values, len(counts))]
            for state, age in zip(states, ages, strict=True):
                replace_value(state[name], new_counts[age])

    def _steps(self, states: Sequence[SavedState]) -> tuple[list[list[Value]], tuple[int, ...]]:
        """For each counter its different values, and for each parameter the place of its own among them.

        Equally old parameters share one counter in the program: a count for each would be as many operands as there are
        parameters.
        """
        counters = self._counters
        if not counters:
            return [], ()
        ages: dict[tuple[Value, ...], int] = {}
        counts = [tuple([operand(state[name]) for name in counters]) for state in states]
        places = tuple([ages.setdefault(count, len(ages)) for count in counts])
        return [[count[at] for count in ages] for at in range(len(counters))], places

    def _begin(self, group: Group, params: Sequence[Tensor]) -> tuple[Collection[str], list[SavedState]]:
        """The names of the state that a group needs, and the state, created where it is missing.

        Parameters that start together share their counters.
        """
        names = self._starts(group, params[0]).keys() if params else ()
        if not names:
            return names, []
        states = [self.state[param] for param in params]
        shared: dict[str, Value] = {}
        for param, state in zip(params, states, strict=True):
            # State may be partly there, as after loading that of an older version.
            if names <= state.keys():
                continue
            for name, start in self._starts(group, param).items():
                if name in state:
                    continue
                value, shape = start if isinstance(start, tuple) else (start, None)
                if name not in self._counters:
                    state[name] = filled(param, value, shape)
                else:
                    # Counters that start together are one value, so they keep their common place in the program.
                    if name not in shared:
                        shared[name] = _counter(value, param._read().aval.device)
                    state[name] = wrap(shared[name])
        return names, states


def evaluated(closure: Closure | None) -> Result:
    """The result of a closure, which is called with gradients enabled."""
    if closure is None:
        return None
    with using(grad=True):
        return closure()


def by_device(params: Sequence[Tensor], kind: Callable[[Tensor], Hashable]) -> list[list[Tensor]]:
    """Parameters in groups that one application can update: of one device, one mesh of processes, and one kind.

    A parameter that comes several times is in several groups, since each update starts from the one before. So are
    parameters that share elements.
    """
    marks: list[tuple[int, Any, Any, Any]] = []
    groups: list[list[Any]] = []
    for param, level in zip(params, _levels(params), strict=True):
        aval = param._read().aval
        mark = (level, aval.device, aval.mesh, kind(param))
        if mark not in marks:
            marks.append(mark)
            groups.append([])
        groups[marks.index(mark)].append(param)
    # A parameter that comes twice is updated twice, one after the other, as PyTorch's loop does; together, the second
    # write would undo the first one's.
    order = sorted(range(len(marks)), key=lambda at: marks[at][0])
    return [groups[at] for at in order]


def _levels(params: Sequence[Tensor]) -> list[int]:
    """For each parameter, a number greater than those of earlier parameters that may share elements with it."""
    levels = [0] * len(params)
    owners = [id(owner_of(param)) for param in params]
    if len(set(owners)) == len(params):  # the usual case
        return levels
    sharing: dict[int, list[int]] = {}
    for at, owner in enumerate(owners):
        sharing.setdefault(owner, []).append(at)
    for places in (places for places in sharing.values() if len(places) > 1):
        spans = [_span(params[at]) for at in places]
        if all(end <= start for (_, end), (start, _) in pairwise(sorted(spans))):  # parts of one buffer, as a rule
            continue
        for n, (start, end) in enumerate(spans):
            earlier = zip(places[:n], spans[:n], strict=True)
            before = [levels[at] for at, (first, last) in earlier if first < end and start < last]
            levels[places[n]] = max(before, default=-1) + 1
    return levels


def _span(param: Tensor) -> tuple[float, float]:
    """The bytes of a storage between which a parameter lies: the first, and one past the last."""
    layout = layout_of(param)
    size = layout.dtype.itemsize
    start = layout.offset * size
    return (0, inf) if isnan(start) else (start, start + max(layout.extent, 1) * size)


def _checked(group: Group, name: str, at: int | None) -> float:
    """An option as a number; raises for NaN, which would spread to all parameters."""
    value = float(group[name] if at is None else group[name][at])
    if value != value:
        raise ValueRangeError(f"Invalid {'learning rate' if name == 'lr' else name}: {value}")
    return value


def _values(tensors: Iterable[Tensor | None]) -> list[Value]:
    return [operand(tensor) for tensor in tensors]


def _scalar_dtype() -> DType:
    return float64 if default_dtype() is float64 else float32


def _counter(start: float | Tensor, device: device) -> Value:
    aval = aval_of((), _scalar_dtype(), device=device)
    return leaf(aval, new_array(aval, float(start)))


def filled(param: Tensor, start: float | Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
    """State with one number everywhere, as an array at once: the first step has the same program as later ones.

    In complex state both parts have that number. Names of the parameter's dims may change later, so state has none.
    """
    start = float(start)
    aval = in_memory(named(param._read().aval, None), False)
    if shape is not None:
        aval = aval_of(shape, aval.dtype, device=aval.device)
    return wrap(leaf(aval, new_array(aval, complex(start, start) if aval.dtype.is_complex else start)))
