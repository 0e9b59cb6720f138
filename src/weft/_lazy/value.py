"""Values: the results of operators, computed or not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from math import prod
from typing import TYPE_CHECKING, Any

from weft._base.device import CPU, device
from weft._base.dtype import DType, bool_
from weft._base.size import size_of

if TYPE_CHECKING:
    from weft._base.state import Ambient
    from weft._lazy.checks import Doubt
    from weft._lazy.signature import Output


class Aval:
    """Interned type of a value: shape, dtype and device. Compare by identity.

    `weak` marks a Python number, which yields to the types of tensors; `inference` what was made in inference mode.
    That is part of the type so that the common call, which looks signatures up by types, leaves it to `record`.
    """

    __slots__ = ("device", "dtype", "inference", "nbytes", "shape", "size", "weak")

    def __init__(
        self, shape: tuple[int, ...], dtype: DType, weak: bool, device: device, inference: bool = False
    ) -> None:
        self.inference = inference
        self.shape = shape
        self.size = size_of(shape)  # the shape as users get it
        self.dtype = dtype
        self.weak = weak
        self.device = device
        self.nbytes = prod(shape) * dtype.itemsize

    def __repr__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}"


_avals: dict[Any, Aval] = {}


def aval_of(shape: tuple[int, ...], dtype: DType, *, weak: bool = False, device: device = CPU) -> Aval:
    """The one `Aval` with these properties."""
    key = (shape, dtype, weak, device)
    aval = _avals.get(key)
    return aval if aval is not None else _avals.setdefault(key, Aval(*key))


def marked(aval: Aval, inference: bool) -> Aval:
    """The type for values that were made in inference mode, or not."""
    if aval.inference is inference:
        return aval
    key = (aval.shape, aval.dtype, aval.weak, aval.device, *((True,) if inference else ()))
    result = _avals.get(key)
    return result if result is not None else _avals.setdefault(key, Aval(*key))


class Tape:
    """How a value takes part in differentiation.

    Most recorded values share `INTERIOR`. A value has its own tape if it is a leaf that accumulates a gradient, has
    hooks, has a user's derivative, if anomaly mode stores the line that made it, or if a backward pass has executed its
    application. Hooks map a gradient's value to another value, or to None to leave it.

    freed    a backward pass has executed the application, and needs none of its arrays any more
    spent    its derivative has read some of them, so it cannot be executed again
    custom   (cotangents by output, outputs) -> gradients of the inputs, for users' derivatives
    release  frees what `custom` has saved
    """

    __slots__ = ("custom", "freed", "grad", "hooks", "leaf", "owner", "post_hooks", "release", "site", "spent")

    KEEP = 1 << 62
    """The key of `retain_grad`'s hook: hooks run in the order of their keys, so it runs last."""

    def __init__(self, *, leaf: bool = False, freed: bool = False, site: str = "") -> None:
        self.leaf = leaf
        self.freed = freed
        self.spent = freed
        self.site = site
        self.grad: Any = None  # the tensor with the accumulated gradient of a leaf
        self.hooks: dict[int, Any] | None = None
        self.post_hooks: dict[int, Any] | None = None
        self.owner: Any = None  # weak reference to the leaf's tensor
        self.custom: Any = None
        self.release: Callable[[], None] | None = None

    @property
    def tape(self) -> Tape:
        """Itself: in the graph that a backward pass leaves, tapes replace their values."""
        return self


INTERIOR = Tape()
FREED = Tape(freed=True)
"""The tape of a value whose graph was freed completely."""


class ExecutedTape(Tape):
    """The tape of a value whose application a backward pass has executed: the links of the graph, without arrays.

    inputs   for each input its tape, `OUTSIDE`, or the value if the pass has not reached it
    """

    __slots__ = ("inputs", "origin", "time")
    leaf = False  # pyright: ignore[reportIncompatibleVariableOverride]  the same for all, so no slots
    freed = True  # pyright: ignore[reportIncompatibleVariableOverride]
    release = None  # pyright: ignore[reportIncompatibleVariableOverride]
    origin: Output | None
    inputs: tuple[Any, ...]
    time: int


class Shared(tuple["Value", ...]):
    """Inputs of an application with several outputs, which a backward pass may reach at different times.

    links   what the first pass that executes it leaves of the inputs
    spent   as in `Tape`
    """

    links: tuple[Any, ...] | None = None
    spent = False


tick = count(1).__next__
"""The number of the next recording."""


class Value:
    """One output of one recorded application, or a leaf that holds an array.

    origin   the output of a signature that makes it; None for a leaf
    inputs   values that the application reads, until nobody needs them; outputs of one application share the tuple
    array    None while not computed; a `jax.Array`; a NumPy array that is still to go to its device; a Python
             number where `aval.weak`; the `Ticket` of the flush that is computing it; or an `Unconfirmed` array
    tape     None when no gradient flows through it
    extras   outputs of the same application that only the derivative reads; or, for an imported buffer, its owner
    num      scratch of the flush that is being planned
    time     number of the recording; whatever uses a value was recorded after it
    doubt    the `Doubt` about the application's inputs, set only where `signature.doubtful`; or None
    """

    __slots__ = ("array", "aval", "doubt", "extras", "inputs", "num", "origin", "tape", "time")
    origin: Output | None
    inputs: tuple[Value, ...]
    aval: Aval
    array: Any
    tape: Tape | None
    extras: Any
    num: int
    doubt: Doubt | None
    time: int

    def __init__(self, aval: Aval, array: Any, *, owner: Any = None) -> None:
        """Make a leaf."""
        self.origin = None
        self.inputs = ()
        self.aval = aval
        self.array = array
        self.tape = None
        self.extras = owner
        self.num = -1
        self.time = 0

    def __repr__(self) -> str:
        state = "leaf" if self.origin is None else self.origin.signature.name
        return f"<{state} {self.aval}{'' if self.array is not None else ' pending'}>"


def is_taped(value: Value) -> bool:
    """Whether a backward pass may still execute the application of a value."""
    tape, inputs = value.tape, value.inputs
    return not (tape is None or tape.leaf or tape.freed) and not (type(inputs) is Shared and inputs.spent)


OUTSIDE = Value(aval_of((), bool_), False)
"""Takes the place of inputs without a gradient in the graph that a backward pass leaves."""


_new = object.__new__


def recorded(origin: Output, inputs: tuple[Value, ...], ambient: Ambient) -> Value:
    """A pending value: one output of an application, appended to the list of pending values.

    `_tensor/fast_path.py` has the same statements inlined; a test compares the two.
    """
    value = _new(Value)
    value.origin = origin
    value.inputs = inputs
    value.aval = origin.aval
    value.array = None
    value.extras = None
    value.num = -1
    value.time = tick()
    value.tape = None
    if ambient.grad:
        for x in inputs:
            if x.tape is not None:
                value.tape = origin.taped
                break
    ambient.pending.append(value)
    return value


def inputs_first(value: Value, enters: Callable[[Value], bool], expands: Callable[[Value], bool]) -> list[Value]:
    """`value` and its ancestors where `enters(value)`, inputs first; inputs are followed where `expands(value)`."""
    order: list[Value] = []
    seen: set[int] = set()
    stack: list[tuple[Value, bool]] = [(value, False)]
    while stack:
        here, ready = stack.pop()
        if ready:
            order.append(here)
        elif id(here) not in seen and enters(here):
            seen.add(id(here))
            stack.append((here, True))
            if expands(here):
                stack.extend((x, False) for x in reversed(here.inputs))
    return order
