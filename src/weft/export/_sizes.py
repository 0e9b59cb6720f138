"""One program for all sizes, from recordings of a function with several sizes.

The recordings must have the same operators. Numbers in which they differ, such as the sizes of a `reshape` or the
divisor of a mean, are expressed by the named dims: as a polynomial of low degree, or by a rounded quotient. The program
is then traced with jax's symbolic dims in their place.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isclose
from typing import Any, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.export import is_symbolic_dim
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from weft._base.types import AnyCallable, Arg, Json, Result
from weft._lazy.interpreter.control import constants_and_carries
from weft.errors import ProgramError
from weft.export._expressions import Expression, Expressions
from weft.ops._jax import broadcasted_iota

_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}
# by dim; in each row, all remainders by 2, 3 and 4 occur, so that rounded quotients differ
_RECORDED = ((5, 8, 13, 18, 23), (7, 10, 12, 17, 27), (9, 11, 14, 16, 29), (15, 19, 20, 22, 33))
_PROBES = 5
_LARGE = 4099
SizeForm: TypeAlias = Any
"""A number or an array, or an expression in the sizes of dims that stands for one."""

Number = int | float
Back = Callable[[Arg], Arg]
"""From an integer, or an expression for one, to the number that follows from it."""

# floats that follow from a whole number: the number from the float, and the float from numbers or arrays
_FORMS: tuple[tuple[Callable[[float], float], Back], ...] = (
    (lambda x: x, lambda n: n),
    (lambda x: 1 / x, lambda n: 1 / n),
    (lambda x: x * x, lambda n: n**0.5),
    (lambda x: 1 / (x * x), lambda n: 1 / n**0.5),
    (lambda x: 1 / (x - 1), lambda n: 1 + 1 / n),  # n / (n - 1), as in an unbiased variance
    (lambda x: 1 / (1 - x), lambda n: 1 - 1 / n),
)

_NEARLY_ONE: tuple[Back, ...] = (lambda n: n / (n - 1), lambda n: 1 - 1 / n)


def examples_of(bounds: dict[str, tuple[int, int]], example: dict[str, int]) -> list[dict[str, int]]:
    """Sizes to record with: small ones, all different where the bounds allow it; one large size at a time; the example.

    The large sizes and the example reveal a function that treats them differently.
    """
    probes: list[dict[str, int]] = [{} for _ in range(_PROBES)]
    for index, (name, (low, high)) in enumerate(bounds.items()):
        start = max(low, 2)
        # Several dims get numbers that are apart, so that no size of one is explained by another one.
        shift = start - 2 + 30 * (index // len(_RECORDED))
        sizes = [shift + size for size in _RECORDED[index % len(_RECORDED)]]
        if sizes[-1] > high:
            spread = range(start, high + 1)
            sizes = [spread[(at + index * (at + 2)) % len(spread)] for at in range(_PROBES)] if spread else []
        if len(set(sizes)) < 3:
            raise ProgramError(
                f"export: {name!r} can only be from {low} to {high}; give it a wider range (from 2 on), or export the "
                "function for each size"
            )
        for at, probe in enumerate(probes):
            probe[name] = sizes[at]
    more = [
        {**probes[index % _PROBES], name: min(high, _LARGE - index)}
        for index, (name, (_, high)) in enumerate(bounds.items())
    ]
    if all(example[name] >= low for name, (low, _) in bounds.items()):
        more.append(example)
    return [*probes, *[probe for probe in more if probe not in probes]]


class Sizes:
    """The named sizes of several recordings, and the symbols for them."""

    def __init__(self, probes: Sequence[dict[str, int]], symbols: Mapping[str, object], name: str) -> None:
        self._probes = probes
        self._symbols = symbols
        self._name = name
        self._expressions = Expressions(probes)
        self._forms: dict[tuple[Number, ...], tuple[Expression, Back] | None] = {}

    # --- numbers ------------------------------------------------------------------------------------------------

    def number(self, values: Sequence[int]) -> SizeForm:
        """The integer that has these values in the recordings, as an expression of the symbols, or None."""
        if len(set(values)) == 1:
            return values[0]
        expression = self._expressions.of(tuple(values))
        return None if expression is None else expression(self._symbols)

    def json_constant(self, values: Sequence[SizeForm]) -> Json:
        """The argument that has these values in the recordings, as a JSON constant for a graph, or "?"."""
        first = values[0]
        if isinstance(first, (np.ndarray, jax.Array)):
            return f"{first.dtype}[{', '.join(map(str, first.shape))}]"
        if all(_same(value, first) for value in values):
            return first if isinstance(first, (bool, int, float, str, type(None))) else str(first)
        expression = self.number(values) if all(type(value) is int for value in values) else None
        return "?" if expression is None else str(expression)

    def _with_canonical_sizes(self, array: np.ndarray, variables: Sequence[Arg]) -> SizeForm:
        """The array with its sizes as the expressions that `Expressions` has for them.

        jax has (h - 1) // 2 + 1 for the size after one operator, (h + 1) // 2 after another, and cannot tell that they
        are equal. Padding by their difference, which is 0, turns one into the other.
        """
        margins: list[tuple[int, SizeForm, int]] = []
        for at, size in enumerate(array.shape):
            margin: SizeForm = 0
            if is_symbolic_dim(size):
                expression = self._expressions.of(tuple([v.aval.shape[at] for v in variables]), str(size))
                margin = 0 if expression is None else expression(self._symbols) - size
            margins.append((0, margin, 0))
        if all(margin == (0, 0, 0) for margin in margins):
            return array
        return lax.pad(array, jnp.zeros((), array.dtype), margins)

    def scalar(self, values: Sequence[Number], dtype: np.dtype, subject: str) -> SizeForm:
        """The number that has these values in the recordings, as an array that depends on the symbols.

        `ProgramError`, which names the `subject` that has the number, if no expression fits.
        """
        if all(a == values[0] or (a != a and values[0] != values[0]) for a in values):
            return jnp.asarray(values[0], dtype)
        key = tuple(values)
        if key not in self._forms:
            self._forms[key] = next(self._forms_of(values), None)
        form = self._forms[key]
        if form is not None:
            expression, back = form
            wide = jnp.asarray(expression(self._symbols), jnp.int64)
            exact = wide if np.issubdtype(dtype, np.integer) else wide.astype(jnp.float64)
            return jnp.asarray(back(exact), dtype)
        raise self._differ(subject, f"a number is {_list_text(values)}")

    def _forms_of(self, values: Sequence[Number]) -> Iterator[tuple[Expression, Back]]:
        """Expressions of whole numbers from which a number follows, each with the function that computes it."""
        for guess, back in _FORMS:
            # the floats of large sizes are not precise enough to tell the whole number
            whole = [_whole(guess, back, value) for value in values[:_PROBES]]
            if any(n is None for n in whole):
                continue
            for expression in self._expressions.candidates(tuple(cast("list[int]", whole))):
                if all(map(_agrees, [back(expression(p)) for p in self._probes], values)):
                    yield expression, back
        for expression in self._expressions.products():  # nor are floats near 1
            sizes = [expression(probe) for probe in self._probes]
            for back in _NEARLY_ONE:
                if min(sizes) > 1 and all(map(_agrees, map(back, sizes), values)):
                    yield expression, back

    def _merged(self, values: Sequence[SizeForm], subject: str) -> SizeForm:
        """The parameter of an operator that has these values in the recordings."""
        first = values[0]
        if isinstance(first, (int, np.integer)) and not isinstance(first, bool):
            expression = self.number([int(value) for value in values])
            if expression is None:
                raise self._differ(subject, f"a size is {_list_text(values)}")
            return expression
        if type(first) is tuple:
            parts = cast("Sequence[tuple[Any, ...]]", values)
            if len({len(part) for part in parts}) > 1:
                raise self._differ(subject, f"a parameter is {_list_text(values)}")
            return tuple([self._merged(column, subject) for column in zip(*parts, strict=True)])
        # A body with sizes of its own would have to be traced again, which its operator's own rule does where there is
        # one.
        if isinstance(first, (Jaxpr, ClosedJaxpr)):
            if len({str(value) for value in values}) > 1:
                raise self._differ(subject, "its inner function depends on sizes")
            return first
        if callable(first) or all(_same(value, first) for value in values):
            return first
        raise self._differ(subject, f"a parameter is {_list_text(values)}")

    def _differ(self, subject: str, what: str) -> ProgramError:
        sizes = "; ".join(", ".join(f"{name}={size}" for name, size in probe.items()) for probe in self._probes[:3])
        return ProgramError(
            f"{self._name}: it cannot be exported for all sizes, as {subject} depends on them in a way that cannot be "
            f"expressed: {what}, for {sizes}, …. Let fewer dims change, or compute without Python numbers made of sizes"
        )

    # --- operators ----------------------------------------------------------------------------------------------

    def evaluate(self, closed: Sequence[ClosedJaxpr], args: Sequence[SizeForm]) -> list[SizeForm]:
        """The results of the recordings, which have the same operators, on arrays with symbolic sizes."""
        consts = [self.constant(values) for values in zip(*[one.consts for one in closed], strict=True)]
        return self._run([one.jaxpr for one in closed], [*consts, *args])

    def constant(self, values: Sequence[SizeForm]) -> SizeForm:
        """An array that has these values in the recordings."""
        first = np.asarray(values[0])
        if all(_same_array(value, first) for value in values):
            return jnp.asarray(first)
        if first.shape == () and first.dtype.kind in "iuf":
            return self.scalar([np.asarray(value).item() for value in values], first.dtype, "a constant")
        affine = [_affine(np.asarray(value)) for value in values]
        if all(part is not None and len(part) == first.ndim + 1 for part in affine):
            return self._from_affine(values, cast("list[list[Number]]", affine), first.dtype)
        raise self._differ("a constant tensor", f"its shapes are {_list_text([np.shape(value) for value in values])}")

    def _from_affine(self, values: Sequence[SizeForm], affine: Sequence[list[Number]], dtype: np.dtype) -> SizeForm:
        """An array of numbers that grow evenly along each dim, such as positions; see `_affine`."""
        what = "a constant tensor"
        shape = self._merged([np.shape(value) for value in values], what)
        start, *steps = [self.scalar(column, dtype, what) for column in zip(*affine, strict=True)]
        array = jnp.broadcast_to(start, shape)
        for dim, step in enumerate(steps):
            array = array + step * broadcasted_iota(dtype, shape, dim)
        return array

    def _run(self, jaxprs: Sequence[Jaxpr], args: Sequence[SizeForm]) -> Result:
        numbers: list[dict[object, int]] = [{} for _ in jaxprs]
        entries: list[SizeForm] = []

        def define(variables: Sequence[object], value: object) -> None:
            for table, variable in zip(numbers, variables, strict=True):
                table[variable] = len(entries)
            entries.append(value)

        def read(atoms: Sequence[Arg], operator: str) -> SizeForm:
            literal = [isinstance(atom, Literal) for atom in atoms]
            if all(literal):
                return self.scalar([np.asarray(atom.val).item() for atom in atoms], atoms[0].aval.dtype, operator)
            indices = {-1 if lit else t[a] for t, a, lit in zip(numbers, atoms, literal, strict=True)}
            if len(indices) > 1:
                raise self._differ(operator, "it reads other values")
            return entries[indices.pop()]

        inputs = [[*jaxpr.constvars, *jaxpr.invars] for jaxpr in jaxprs]
        for variables, value in zip(zip(*inputs, strict=True), args, strict=True):
            define(variables, value)
        lengths = {len(jaxpr.eqns) for jaxpr in jaxprs}
        # The recordings are walked together: where they do not have the same operators on the same values, the function
        # depends on sizes in a way that no single program has.
        for eqns in zip(*[jaxpr.eqns for jaxpr in jaxprs], strict=False):
            operator = _operator_text(eqns[0])
            names = {eqn.primitive.name for eqn in eqns}
            if len(names) > 1 or len({(len(eqn.invars), len(eqn.outvars)) for eqn in eqns}) > 1:
                raise self._differ(operator, f"the operators are {_list_text(sorted(names))}")
            operands = [read(atoms, operator) for atoms in zip(*[eqn.invars for eqn in eqns], strict=True)]
            results = self._apply(eqns, operands, operator)
            for variables, value in zip(zip(*[eqn.outvars for eqn in eqns], strict=True), results, strict=True):
                define(variables, self._with_canonical_sizes(value, variables))
        if len(lengths) > 1:
            raise self._differ("the number of operators", f"it is {_list_text(sorted(lengths))}")
        return [read(atoms, "a result") for atoms in zip(*[jaxpr.outvars for jaxpr in jaxprs], strict=True)]

    def _apply(self, eqns: Sequence[JaxprEqn], operands: list[SizeForm], operator: str) -> Sequence[SizeForm]:
        first = eqns[0]
        name = first.primitive.name
        if name in _CALLS:
            return self._body([eqn.params[_CALLS[name]] for eqn in eqns])(*operands)
        control = {
            "scan": self._scan,
            "while": self._while,
            "cond": self._cond,
            "custom_linear_solve": self._solve,
        }.get(name)
        if control is not None:
            return control(eqns, operands, operator)
        params = {key: self._merged([eqn.params[key] for eqn in eqns], operator) for key in first.params}
        bind: AnyCallable = first.primitive.bind
        try:
            results = bind(*operands, **params)
        except Exception as error:
            raise ProgramError(
                f"{self._name}: {operator} cannot be exported for all sizes ({reason_of(error)}); let fewer dims "
                "change, or bound them with Dim(name, min=…, max=…)"
            ) from error
        return results if first.primitive.multiple_results else [results]

    def _body(self, bodies: Sequence[Arg]) -> Callable[..., list[SizeForm]]:
        if isinstance(bodies[0], ClosedJaxpr):
            return lambda *args: self.evaluate(bodies, args)
        return lambda *args: self._run(bodies, args)

    def _scan(self, eqns: Sequence[JaxprEqn], operands: list[SizeForm], operator: str) -> Sequence[SizeForm]:
        params = eqns[0].params
        body = self._body([eqn.params["jaxpr"] for eqn in eqns])
        n, m = constants_and_carries(params)
        consts, init, xs = operands[:n], operands[n : n + m], operands[n + m :]

        def step(carry: Sequence[object], x: Sequence[object]) -> tuple[list[SizeForm], list[SizeForm]]:
            results = body(*consts, *carry, *x)
            return results[:m], results[m:]

        length = None if xs else self._merged([eqn.params["length"] for eqn in eqns], operator)
        carry, ys = lax.scan(step, init, xs, length=length, reverse=params["reverse"])
        return [*carry, *ys]

    def _while(self, eqns: Sequence[JaxprEqn], operands: list[SizeForm], operator: str) -> Sequence[SizeForm]:
        del operator
        n, m = eqns[0].params["cond_nconsts"], eqns[0].params["body_nconsts"]
        test = self._body([eqn.params["cond_jaxpr"] for eqn in eqns])
        body = self._body([eqn.params["body_jaxpr"] for eqn in eqns])
        tests, consts = operands[:n], operands[n : n + m]
        return lax.while_loop(
            lambda carry: test(*tests, *carry)[0], lambda carry: body(*consts, *carry), operands[n + m :]
        )

    def _cond(self, eqns: Sequence[JaxprEqn], operands: list[SizeForm], operator: str) -> Sequence[SizeForm]:
        del operator
        columns = zip(*[eqn.params["branches"] for eqn in eqns], strict=True)
        return lax.switch(operands[0], [self._body(column) for column in columns], *operands[1:])

    def _solve(self, eqns: Sequence[JaxprEqn], operands: list[SizeForm], operator: str) -> Sequence[SizeForm]:
        """The solution; the other functions of `lax.custom_linear_solve` are only for derivatives."""
        del operator
        lengths = eqns[0].params["const_lengths"]
        start = lengths.matvec + lengths.vecmat
        consts, rest = operands[start : start + lengths.solve], operands[sum(lengths) :]
        return self._body([eqn.params["jaxprs"].solve for eqn in eqns])(*consts, *rest)


def _whole(guess: Callable[[float], float], back: Back, value: Number) -> int | None:
    """The whole number that a float follows from, up to the precision of float32."""
    try:
        n = round(guess(float(value)))
        return n if n and abs(n) < 1 << 52 and _agrees(back(n), value) else None
    except (ArithmeticError, ValueError, TypeError):  # no finite number; or back(n) is complex
        return None


def _agrees(one: Number, other: Number) -> bool:
    return isclose(one, other, rel_tol=3e-7)


def _affine(array: np.ndarray) -> list[Number] | None:
    """The first element, and the step along each dim, of an array with even steps; None for other arrays."""
    if array.dtype.kind not in "iuf" or not array.size:
        return None
    first = array[(0,) * array.ndim]
    steps = [np.diff(array, axis=dim)[(0,) * array.ndim] if size > 1 else 0 for dim, size in enumerate(array.shape)]
    grid = sum((step * at for step, at in zip(steps, np.indices(array.shape, sparse=True), strict=True)), first)
    if not np.array_equal(np.broadcast_to(grid, array.shape), array):
        return None
    return [float(x) if array.dtype.kind == "f" else int(x) for x in (first, *steps)]


def _same(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return _same_array(one, other)
    return type(one) is type(other) and bool(one == other or (one != one and other != other))


def _same_array(one: object, other: object) -> bool:
    a, b = np.asarray(one), np.asarray(other)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _list_text(values: Sequence[SizeForm]) -> str:
    """The first three different values."""
    texts = list(dict.fromkeys(map(str, values)))
    return ", ".join(texts[:3]) + (", …" if len(texts) > 3 else "")


def _operator_text(eqn: JaxprEqn) -> str:
    """Names, for errors, the operator that an equation belongs to."""
    stack = str(eqn.source_info.name_stack)
    return f"the operator {stack.rsplit('/', 1)[-1] or eqn.primitive.name!r}"


Form: TypeAlias = list["str | Form"]
"""Operators without sizes; within a list, those of functions within."""


def form_of(jaxpr: Jaxpr) -> Form:
    """The operators, without sizes."""
    form: Form = []
    for eqn in jaxpr.eqns:
        form.append(eqn.primitive.name)
        inner = (x for entry in eqn.params.values() for x in (entry if isinstance(entry, tuple) else (entry,)))
        form += [
            form_of(x.jaxpr if isinstance(x, ClosedJaxpr) else x) for x in inner if isinstance(x, (ClosedJaxpr, Jaxpr))
        ]
    return form


def reason_of(error: Exception) -> str:
    """The first sentence of one of jax's errors, which go on for pages."""
    return str(error).split("\n", 1)[0].strip().rstrip(".")[:300]


def symbols_for(bounds: dict[str, tuple[int, int]], most: int) -> dict[str, SizeForm]:
    """jax's symbolic dims with these bounds; an upper bound of `most` means that there is none."""
    if not bounds:
        return {}
    constraints = [f"{name} >= {low}" for name, (low, _) in bounds.items()]
    constraints += [f"{name} <= {high}" for name, (_, high) in bounds.items() if high < most]
    dims = jax.export.symbolic_shape(",".join(bounds), constraints=constraints)
    assert all(map(is_symbolic_dim, dims)), "names are no numbers"
    return dict(zip(bounds, dims, strict=True))
