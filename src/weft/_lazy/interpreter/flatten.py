"""Turns a jaxpr into a flat list of equations over numbered registers, without calls and without no-ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import NamedTuple, cast

import jax
import numpy as np
from jax.export import is_symbolic_dim
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from weft._base.types import Arg
from weft._lazy.interpreter.table import PRIMITIVES, Array, Params, Type, is_key, read_only, stored_as
from weft._lazy.trace import Size, SizeValues, Trace, as_text

_CALLS = {
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "eval_jaxpr",
    "checkpoint",
    "remat",
    "remat2",
    "composite",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
}
_BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_NOTHING = {"copy", "copy_p", "stop_gradient", "optimization_barrier", "random_clone", "sharding_constraint"}
_NOTHING_IF_SAME_TYPE = {
    "broadcast_in_dim",
    "concatenate",
    "convert_element_type",
    "reshape",
    "slice",
    "squeeze",
    "tile",
    "bitcast_convert_type",
}


class Equation(NamedTuple):
    """An application of a primitive to registers; `several` says whether its function returns a sequence."""

    name: str
    params: Params
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    several: bool = False


class FlatTrace:
    """Equations in the order of execution.

    types      the type of each register
    constants  the values of the registers that are known in advance

    Of a general trace, sizes are text (`Size`), also within parameters and the bodies of loops, which are `FlatTrace`s:

    sized_types, sized_equations  the numbers of those registers, and positions of those equations
    size_constants                registers whose value is a size
    """

    def __init__(self) -> None:
        self.types: list[Type] = []
        self.constants: dict[int, Array] = {}
        self.equations: list[Equation] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self.sized_types: list[int] = []
        self.sized_equations: list[int] = []
        self.size_constants: list[tuple[int, Size]] = []

    def register(self, aval: Arg) -> int:
        """Add a register of a jax type; returns its number."""
        types = self.types
        shape: Arg = as_text(aval.shape)  # numbers, once they are known
        types.append(Type(shape, stored_as(aval.dtype)))
        return len(types) - 1

    def constant(self, value: Arg, aval: Arg) -> int:
        """Add a register with a known value; returns its number."""
        number = self.register(aval)
        if is_key(aval.dtype):
            value = np.ascontiguousarray(jax.random.key_data(value)).view(self.types[number].dtype)[..., 0]
        self.constants[number] = read_only(np.asarray(value, self.types[number].dtype))
        return number

    def types_of(self, registers: Iterable[int]) -> list[Type]:
        """The types of these registers."""
        types = self.types
        return [types[number] for number in registers]

    def find_sizes(self) -> None:
        """Note where sizes are text."""
        self.sized_types = [at for at, t in enumerate(self.types) if _has_sizes(t.shape)]
        if not (self.sized_types or self.size_constants):
            return  # most traces have numbers
        self.sized_equations = [at for at, e in enumerate(self.equations) if _has_sizes(tuple(e.params.values()))]

    def with_sizes(self, sizes: SizeValues) -> FlatTrace:
        """The equations with numbers for sizes."""
        if not self.sized_types and not self.sized_equations and not self.size_constants:
            return self
        flat = copy(self)
        flat.types, flat.equations = self.types.copy(), self.equations.copy()
        for at in self.sized_types:
            shape, dtype = self.types[at]
            flat.types[at] = Type(sizes.shape(shape), dtype)
        for at in self.sized_equations:
            equation = self.equations[at]
            numbers = {key: _with_numbers(value, sizes) for key, value in equation.params.items()}
            flat.equations[at] = equation._replace(params=numbers)
        if self.size_constants or self.constants:
            flat.constants = self.constants.copy()
        for number, size in self.size_constants:
            flat.constants[number] = read_only(np.asarray(sizes.number(size), self.types[number].dtype))
        flat.sized_types, flat.sized_equations, flat.size_constants = [], [], []
        return flat


def _has_sizes(value: Arg) -> bool:
    if isinstance(value, tuple):
        return any(map(_has_sizes, cast("tuple[Arg, ...]", value)))
    if isinstance(value, FlatTrace):
        return bool(value.sized_types or value.sized_equations or value.size_constants)
    return type(value) is Size


def _with_numbers(value: Arg, sizes: SizeValues) -> Arg:
    """A parameter with numbers for sizes."""
    if type(value) is Size:
        return sizes.number(value)
    if isinstance(value, FlatTrace):
        return value.with_sizes(sizes)
    if isinstance(value, tuple):
        return _with_parts(cast("tuple[Arg, ...]", value), partial(_with_numbers, sizes=sizes))
    return value


def _with_parts(value: tuple[Arg, ...], function: Callable[[Arg], Arg]) -> tuple[Arg, ...]:
    """A tuple, or a named tuple, with what a function makes of its parts; the same one where it changes none."""
    parts = [function(part) for part in value]
    if all(a is b for a, b in zip(parts, value, strict=True)):
        return value
    return tuple(parts) if type(value) is tuple else type(value)(*parts)


def _as_parameter(value: Arg) -> Arg:
    """A parameter of jax's with text for sizes, and equations for bodies."""
    if isinstance(value, tuple):
        return _with_parts(cast("tuple[Arg, ...]", value), _as_parameter)
    if isinstance(value, ClosedJaxpr):
        return flattened(value)
    if isinstance(value, Jaxpr):
        return value if value.constvars else flattened(ClosedJaxpr(value, ()))
    return Size(value) if is_symbolic_dim(value) else value


def _as_parameters(params: Params) -> Params:
    """The parameters of an equation of jax, with text for sizes; the same ones if it has no sizes."""
    changed = {key: new for key, value in params.items() if (new := _as_parameter(value)) is not value}
    return {**params, **changed} if changed else params


def flattened(program: Trace | ClosedJaxpr | FlatTrace) -> FlatTrace:
    """The equations that the results of a trace, or of a whole jaxpr, depend on."""
    if isinstance(program, FlatTrace):
        return program
    trace = program if isinstance(program, Trace) else Trace(program)
    if trace.flat is None:
        if trace.general is None or trace.sizes is None:
            trace.flat = _flattened(trace)
        else:
            trace.flat = flattened(trace.general).with_sizes(trace.sizes)
    return trace.flat


def _flattened(trace: Trace) -> FlatTrace:
    flat = FlatTrace()
    jaxpr = trace.closed.jaxpr
    consts = [flat.constant(c, var.aval) for c, var in zip(trace.closed.consts, jaxpr.constvars, strict=True)]
    args = [flat.register(var.aval) for var in jaxpr.invars]
    results = _inline(flat, jaxpr, consts, args)
    flat.inputs = [args[at] for at in trace.inputs]
    flat.outputs = [results[at] for at in trace.results]
    _drop_unused(flat)
    _drop_broadcasts(flat)
    flat.find_sizes()
    return flat


def _inline(flat: FlatTrace, jaxpr: Jaxpr, consts: Sequence[int], args: Sequence[int]) -> list[int]:
    """Append the equations of a jaxpr, applied to these registers; returns the registers of its results."""
    place: dict[Arg, int] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))

    def read(atom: object) -> int:
        return flat.constant(atom.val, atom.aval) if isinstance(atom, Literal) else place[atom]

    for eqn in jaxpr.eqns:
        ins = [read(atom) for atom in eqn.invars]
        place.update(zip(eqn.outvars, _append(flat, eqn, ins), strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _append(flat: FlatTrace, eqn: Arg, ins: list[int]) -> Sequence[int]:
    name = eqn.primitive.name
    if name in _CALLS:
        body, consts = _body(flat, next(eqn.params[key] for key in _BODIES if key in eqn.params))
        return _inline(flat, body, consts, ins)
    if name == "custom_linear_solve":
        return _inline_solve(flat, eqn.params, ins)
    if name in _NOTHING:
        return ins
    if name == "dim_as_value":
        number = flat.register(eqn.outvars[0].aval)
        flat.size_constants.append((number, Size(eqn.params["dim"])))
        return [number]
    params = _as_parameters(eqn.params)
    outs = [flat.register(var.aval) for var in eqn.outvars]
    is_moved = name == "reshape" and eqn.params["dimensions"] is not None
    if name in _NOTHING_IF_SAME_TYPE and not is_moved and flat.types[outs[0]] == flat.types[ins[0]]:
        return ins[:1]
    if name.startswith("random_"):  # some of these primitives do not have the kind of their keys as a parameter
        params = {**params, "keys": [v.aval.dtype for v in (*eqn.invars, *eqn.outvars)]}
    flat.equations.append(Equation(name, params, tuple(ins), tuple(outs), eqn.primitive.multiple_results))
    return outs


def _body(flat: FlatTrace, body: Arg) -> tuple[Jaxpr, list[int]]:
    """A jaxpr from an equation's parameters, closed or not, and the registers of its constants."""
    if not isinstance(body, ClosedJaxpr):
        return body, []
    consts = zip(body.consts, body.jaxpr.constvars, strict=True)
    return body.jaxpr, [flat.constant(value, var.aval) for value, var in consts]


def _inline_solve(flat: FlatTrace, params: Mapping[str, Arg], ins: list[int]) -> list[int]:
    """Append the `solve` of a `lax.custom_linear_solve`, whose other functions are only for derivatives."""
    lengths = params["const_lengths"]
    before = lengths.matvec + lengths.vecmat
    rest = ins[before + lengths.solve + lengths.transpose_solve :]
    body, consts = _body(flat, params["jaxprs"].solve)
    return _inline(flat, body, consts, [*ins[before : before + lengths.solve], *rest])


def _drop_unused(flat: FlatTrace) -> None:
    live = set(flat.outputs)
    kept: list[Equation] = []
    for equation in reversed(flat.equations):
        if not live.isdisjoint(equation.outs):
            live.update(equation.ins)
            kept.append(equation)
    flat.equations = kept[::-1]


def _drop_broadcasts(flat: FlatTrace) -> None:
    """Drop broadcasts whose results are only read by functions that broadcast by themselves.

    Such a broadcast becomes a reshape that aligns the dims, or nothing if they are aligned already. The types of the
    registers do not change, since functions are bound by them.
    """
    if not any(equation.name == "broadcast_in_dim" for equation in flat.equations):
        return
    users: dict[int, list[Equation]] = {}
    for equation in flat.equations:
        for number in set(equation.ins):
            users.setdefault(number, []).append(equation)
    narrow: dict[int, tuple[int, ...]] = {}
    renamed: dict[int, int] = {}
    kept: list[Equation] = []
    for equation in flat.equations:
        shape = _placed(flat, equation) if equation.name == "broadcast_in_dim" else None
        if shape is not None and _spread_by_users(flat, equation.outs[0], shape, users, narrow):
            (source,), (out,) = equation.ins, equation.outs
            narrow[out] = shape
            if shape == narrow.get(source, flat.types[source].shape):
                renamed[out] = renamed.get(source, source)
                continue
            equation = Equation("reshape", {"new_sizes": shape, "dimensions": None}, equation.ins, equation.outs)
        if not renamed.keys().isdisjoint(equation.ins):
            equation = equation._replace(ins=tuple([renamed.get(number, number) for number in equation.ins]))
        kept.append(equation)
    flat.equations = kept


def _placed(flat: FlatTrace, equation: Equation) -> tuple[int, ...]:
    """The shape of a broadcast's input with its dims where NumPy aligns them: ones between them, but not in front."""
    shape = [1] * len(flat.types[equation.outs[0]].shape)
    for size, dim in zip(flat.types[equation.ins[0]].shape, equation.params["broadcast_dimensions"], strict=True):
        shape[dim] = size
    first = min(equation.params["broadcast_dimensions"], default=len(shape))
    return tuple(shape[first:])


def _spread_by_users(
    flat: FlatTrace,
    number: int,
    shape: tuple[int, ...],
    users: Mapping[int, list[Equation]],
    narrow: Mapping[int, tuple[int, ...]],
) -> bool:
    """Whether all equations that read a register would give the same results if it had this shape."""
    if number in flat.outputs:
        return False
    for user in users.get(number, ()):
        if user.name not in PRIMITIVES or not PRIMITIVES[user.name].broadcasts:
            return False
        shapes = [shape if i == number else narrow.get(i, flat.types[i].shape) for i in user.ins]
        if _broadcast(shapes) != flat.types[user.outs[0]].shape:
            return False
    return True


def _broadcast(shapes: Sequence[Sequence[int | Size]]) -> tuple[int | Size, ...] | None:
    """The shape to which shapes broadcast, where sizes may be text; None if there is none."""
    ndim = max(map(len, shapes))
    result: list[int | Size] = []
    for at in range(-ndim, 0):
        sizes = {shape[at] for shape in shapes if len(shape) >= -at} - {1}
        if len(sizes) > 1:
            return None
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)
