"""Values: what an operator will give, or has given."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from math import prod
from typing import TYPE_CHECKING, Any

from weft._base.device import CPU, device
from weft._base.dtype import DType

if TYPE_CHECKING:
    from weft._lazy.checks import Doubt
    from weft._lazy.infer import Output


class Aval:
    """Interned type of a value: shape, dtype and device. Compare by identity.

    `weak` marks a Python number, which yields to the types of tensors.
    """

    __slots__ = ("device", "dtype", "nbytes", "shape", "weak")

    def __init__(self, shape: tuple[int, ...], dtype: DType, weak: bool, device: device) -> None:
        self.shape = shape
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
    found = _avals.get(key)
    return found if found is not None else _avals.setdefault(key, Aval(*key))


class Tape:
    """How a value takes part in differentiation.

    Most recorded values share `INTERIOR`. A value has a record of its own when it is a leaf that collects a
    gradient, when hooks hang on it, when its derivative is the user's, or when anomaly mode keeps the line that
    made it. Hooks map a gradient's value to another value, or to None to leave it.
    """

    __slots__ = ("custom", "freed", "grad", "hooks", "leaf", "owner", "post_hooks", "site")

    def __init__(self, *, leaf: bool = False, freed: bool = False, site: str = "") -> None:
        self.leaf = leaf
        self.freed = freed
        self.site = site
        self.grad: Any = None  # the tensor that a leaf has collected
        self.hooks: dict[int, Any] | None = None
        self.post_hooks: dict[int, Any] | None = None
        self.owner: Any = None  # weak reference to the leaf's tensor
        self.custom: Any = None  # (cotangents by output, outputs) -> gradients of the inputs (`autograd/_function.py`)


INTERIOR = Tape()
FREED = Tape(freed=True)


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
    doubt    what is not known about the application's inputs, set only where `signature.doubtful`; or None
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


_new = object.__new__


def recorded(origin: Output, inputs: tuple[Value, ...]) -> Value:
    """A pending value off every list: an output of an application that is, or will be, recorded."""
    value = _new(Value)
    value.origin = origin
    value.inputs = inputs
    value.aval = origin.aval
    value.array = None
    value.extras = None
    value.num = -1
    value.time = tick()
    value.tape = None
    return value


def inputs_first(value: Value, enters: Callable[[Value], bool], expands: Callable[[Value], bool]) -> list[Value]:
    """`value` and what it needs, each after its inputs: those that `enters`, through those that `expands`."""
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
