"""A function at some arguments, and its derivative there, in both directions.

The function runs once, on arguments that have a place of their own in the graph. Gradients are taken to these places by
a backward pass, and tangents from them by a forward pass. A place is the identity of what the caller has passed, so the
results are in the caller's graph as if the function had been called directly; what nothing in the caller's graph needs
is taken out of it (`_autograd/levels.py` says which values that are).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft._autograd.forward import pushed_forward
from weft._autograd.graph import Held
from weft._autograd.levels import Level, flows_out
from weft._base.state import ambient, using
from weft._base.types import AnyCallable, Arg, Args, PyTree
from weft._dispatch import apply
from weft._lazy.call import ONE
from weft._lazy.external import taken_in
from weft._lazy.infer import call_of
from weft._lazy.value import Value
from weft._tensor.composite.create import zeros_like
from weft._tensor.gradients import grad as gradients
from weft._tensor.kind_names import advice
from weft._tensor.tensor import Tensor, operand, wrap
from weft._tensor.view import entered, own
from weft.errors import GradientError, TransformError, ValueRangeError
from weft.func._trees import flattened, mapped, rebuilt
from weft.ops._table import TABLE

ArgNums = int | tuple[int, ...]
_ALIAS = call_of(TABLE["alias"], (ONE,))


class Linearization:
    """A function's results at some arguments, and its derivative there.

    inputs    the leaves of the arguments that it is differentiated by
    argument_structure   the structure around them
    outputs   the leaves of the results, in the graph between
    structure the structure around these
    aux       what else the function has returned
    """

    def __init__(
        self,
        func: AnyCallable,
        args: Args,
        argnums: ArgNums | None,
        has_aux: bool,
        name: str,
        *,
        forward: bool = False,
    ) -> None:
        chosen = args if argnums is None else chosen_arguments(args, argnums)
        self.inputs, self.argument_structure = flattened(chosen)
        # `func` gets tensors of this level's own, which share the arguments' elements: derivatives at an outer level
        # flow through the arguments, those of this one end at the places. Users' `no_grad` around the call has no say.
        state = ambient()
        self._level = level = Level()
        noting = (*state.watchers.forward, level) if forward else state.watchers.forward
        try:
            with using(grad=True, inference=False, transform=level, forward=noting):
                places = [_placed(x, level) for x in self.inputs]
                self._places = [wrap(value) for value in places]
                own_arguments = rebuilt(self.argument_structure, [wrap(value) for value in places])
                result = func(*(own_arguments if argnums is None else _replaced(args, own_arguments, argnums)))
        finally:
            level.end()
        self.aux: Any = None
        if has_aux:
            if not isinstance(result, tuple) or len(result) != 2:
                raise TransformError(
                    f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True"
                )
            result, aux = result
            self.aux = mapped(_left, aux)
        self.result = result
        self.outputs, self.structure = flattened(result)
        self._held: Held | None = None

    def left(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Results as the caller gets them: on the tape if anybody may ask for their gradients."""
        return [_left(tensor) for tensor in tensors]

    def hold(self) -> None:
        """Stay usable when the caller runs backward passes over the results, which free what is between."""
        self._held = Held([y._read() for y in self.outputs], self._level.start)

    # --- both directions ----------------------------------------------------------------------------------------

    def pulled(
        self, cotangents: Sequence[Tensor], *, retain_graph: bool = True, create_graph: bool = True
    ) -> list[Tensor]:
        """The gradients with respect to the inputs, from those of the outputs."""
        if self._held is not None:
            self._held.restore()
            if not retain_graph:
                self._held = None
        pairs = [(y, g) for y, g in zip(self.outputs, cotangents, strict=True) if y.requires_grad]
        # A graph is only recorded where somebody outside can differentiate through it: it costs memory, and a tape for
        # each pullback.
        create = create_graph and ambient().grad and any(g.requires_grad or flows_out(operand(y)) for y, g in pairs)
        if not pairs:
            return [zeros_like(place.detach()) for place in self._places]
        results = gradients(
            [y for y, _ in pairs],
            self._places,
            [g for _, g in pairs],
            retain_graph=retain_graph or create,
            create_graph=create,
            materialize_grads=True,
        )
        return self.left([x for x in results if x is not None])

    def pushed(self, tangents: Sequence[Tensor]) -> list[Tensor | None]:
        """The tangents of the outputs, from those of the inputs; None for outputs that do not depend on these."""
        if self._held is not None:
            self._held.restore()
        by_place: dict[Value, Value | None] = {
            place._read(): taken_in(operand(t)) for place, t in zip(self._places, tangents, strict=True)
        }
        results = pushed_forward([y._read() for y in self.outputs], by_place, self._level.links)
        return [None if value is None else _left(wrap(value)) for value in results]


def _left(x: Arg) -> Arg:
    """A result as the caller gets it."""
    if not isinstance(x, Tensor) or not x.requires_grad or (ambient().grad and flows_out(operand(x))):
        return x
    if not ambient().watchers.forward:
        return wrap(own(operand(x)))
    with using(grad=False):  # levels of forward mode note it, so tangents go on
        return wrap(apply(_ALIAS, (operand(x),))[0])


def _placed(x: object, level: Level) -> Value:
    """An argument with a place of its own in the graph, which belongs to a level."""
    if not isinstance(x, Tensor):
        raise ValueRangeError(f"Thing passed to transform API must be Tensor, got {type(x)}{advice(x)}")
    if not x.dtype.is_differentiable:
        raise GradientError("only Tensors of floating point dtype can require gradients")
    place = entered(operand(x))
    level.add_place(place)
    return place


# --- arguments --------------------------------------------------------------------------------------------------


def chosen_arguments(args: Args, argnums: ArgNums) -> PyTree:
    """The argument with a number, or those of several as a tuple; `RuntimeError` for numbers that do not fit."""
    if isinstance(argnums, tuple):
        numbers = _checked(argnums, len(args))
        if not argnums:
            raise TransformError("argnums must be non-empty")
        if len(set(numbers)) != len(numbers):
            raise TransformError(f"argnums elements must be unique, got {argnums}")
        return tuple([args[at] for at in numbers])
    if not isinstance(argnums, int):
        raise TransformError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    return args[_checked((argnums,), len(args))[0]]


def _checked(argnums: tuple[int, ...], count: int) -> list[int]:
    """The numbers of arguments from 0 on."""
    for argnum in argnums:
        if not isinstance(argnum, int):
            raise TransformError(f"argnum must be int, got: {type(argnum)}")
        if not -count <= argnum < count:
            raise TransformError(f"Got argnum={argnum}, but only {count} positional inputs")
    return [argnum % count for argnum in argnums]


def _replaced(args: Args, chosen: PyTree, argnums: ArgNums) -> Args:
    """The arguments with those of some numbers replaced."""
    numbers, new = (argnums, chosen) if isinstance(argnums, tuple) else ((argnums,), (chosen,))
    replacements = dict(zip(_checked(numbers, len(args)), new, strict=True))
    return tuple([replacements.get(at, x) for at, x in enumerate(args)])


def require_tensors(leaves: Sequence[object], name: str) -> None:
    """Raise `RuntimeError` unless a function's results are tensors."""
    if not leaves or (len(leaves) == 1 and leaves[0] is None):
        raise TransformError(f"{name}: Expected f to be a function that has non-empty output (got output = {leaves})")
    for x in leaves:
        if not isinstance(x, Tensor):
            raise TransformError(f"{name}: expected f(*primals) to return only tensors, got unsupported type {type(x)}")
