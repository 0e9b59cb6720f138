"""Users' operators by their names: how they are published, found and withdrawn."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any

import weft.ops as _ops
from weft._base.cell import Cell
from weft._base.state import ambient
from weft._base.types import Arg, Result
from weft._tensor.overriding import flat, handle, overriding_among
from weft.errors import ArgumentError, RegistrationError
from weft.ops._namespaces import NAMESPACES, OpNamespace, OpOverload, OpOverloadPacket


class Tag(Enum):
    """What PyTorch's programs say of an operator. It is not needed here: all of it follows from the body."""

    core = auto()
    cudagraph_unsafe = auto()
    data_dependent_output = auto()
    dynamic_output_shape = auto()
    flexible_layout = auto()
    generated = auto()
    inplace = auto()
    inplace_view = auto()
    maybe_aliasing_or_mutating = auto()
    needs_exact_strides = auto()
    needs_fixed_stride_order = auto()
    nondeterministic_bitwise = auto()
    nondeterministic_seeded = auto()
    out = auto()
    pointwise = auto()
    pt2_compliant_tag = auto()
    view_copy = auto()


class Packet(OpOverloadPacket):
    """All overloads of an operator of users. A call goes to the first that takes the arguments."""

    def __call__(self, *args: Arg, **kwargs: Arg) -> Result:
        """Record the operator."""
        relevant = list(flat(args, kwargs))
        if ambient().overrides.mode is not None or overriding_among(relevant):
            return handle(self, relevant, args, kwargs)
        *others, last = self._overloads.values()
        for overload in others:
            try:
                return overload(*args, **kwargs)
            except ArgumentError:
                continue
        return last(*args, **kwargs)


_definitions = Cell[object]("the definitions of custom operators", None)


def redefined() -> None:
    """Called when an operator that may have been called computes something else from now on."""
    _definitions.set(object())


def publish(operator: Any, name: str, overload: str = "") -> None:
    """Let an operator be found under its name, instead of one that had it before."""
    namespace, _, own = name.partition("::")
    if hasattr(_ops, namespace) and namespace not in NAMESPACES:
        raise RegistrationError(f"{name}: the namespace {namespace!r} is one of weft.ops itself; choose another")
    packets = NAMESPACES.setdefault(namespace, OpNamespace(namespace))._packets
    packet = packets.setdefault(own, Packet(namespace, own))
    if (overload or "default") in packet._overloads:
        redefined()
    packet._overloads[overload or "default"] = operator.public = OpOverload(packet, overload, operator)
    for act in _waiting.pop(f"{name}.{overload}" if overload else name, ()):
        act(operator)


def withdraw(name: str, overload: str = "") -> None:
    """Let an operator be found no more."""
    namespace, _, own = name.partition("::")
    redefined()
    packets = NAMESPACES[namespace]._packets
    packets[own]._overloads.pop(overload or "default", None)
    if not packets[own]._overloads:
        del packets[own]


# no cell: what waits for an operator, which does not exist yet
_waiting: dict[str, list[Callable[[Any], object]]] = {}


def when_defined(name: str, act: Callable[[Arg], object]) -> None:
    """Call `act` with an operator: at once, or when one with this name is defined.

    Libraries state rules for the operators of an extension that may not be there.
    """
    try:
        operator = lookup(name)
    except RegistrationError:
        _waiting.setdefault(name, []).append(act)
    else:
        act(operator)


def lookup(name: object) -> Arg:
    """The operator called `namespace::name` or `namespace::name.overload`, or that of an overload; `RuntimeError`."""
    if not isinstance(name, str):
        return getattr(name, "operator", name)
    qualified, _, overload = name.partition(".")
    namespace, _, own = qualified.partition("::")
    packet = getattr(NAMESPACES.get(namespace), "_packets", {}).get(own)
    entry = None if packet is None else packet._overloads.get(overload or "default")
    if entry is None:
        raise RegistrationError(f"operator {name} does not exist; define it first, by custom_op or Library.define")
    return entry.operator
