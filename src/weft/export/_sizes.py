"""One program for all sizes, from recordings of a function with several sizes.

The recordings must have the same operators. Numbers in which they differ, such as the sizes of a `reshape` or the
divisor of a mean, are expressed by the named dims: as a polynomial of low degree, or by a rounded quotient. The program
is then traced with jax's symbolic dims in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, combinations_with_replacement
from math import isclose, prod
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.export import is_symbolic_dim
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from weft.errors import ProgramError

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
_LARGEST_DIVISOR = 32
_PRIMES = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)
_PROBES = 5
_LARGE = 4099
Number = int | float
Expression = Callable[[Mapping[str, Any]], Any]
"""A number by the named sizes, or by the symbols for them."""

# floats that follow from a whole number: a guess at the number, and the float again, of numbers and of arrays
_FORMS: tuple[tuple[Callable[[float], float], Callable[[Any], Any]], ...] = (
    (lambda x: x, lambda n: n),
    (lambda x: 1 / x, lambda n: 1 / n),
    (lambda x: x * x, lambda n: n**0.5),
    (lambda x: 1 / (x * x), lambda n: 1 / n**0.5),
    (lambda x: 1 / (x - 1), lambda n: 1 + 1 / n),  # n / (n - 1), as in an unbiased variance
    (lambda x: 1 / (1 - x), lambda n: 1 - 1 / n),
)


def examples_of(bounds: dict[str, tuple[int, int]], given: dict[str, int]) -> list[dict[str, int]]:
    """Sizes to record with: small ones, all different where the bounds allow it; large ones; and those `given`.

    The latter are to find a function that does something else with them.
    """
    probes: list[dict[str, int]] = [{} for _ in range(_PROBES)]
    for place, (name, (low, high)) in enumerate(bounds.items()):
        start = max(low, 2)
        sizes = [start - 2 + prime for prime in _PRIMES if start - 2 + prime <= high]
        if len(sizes) < _PROBES:
            sizes = list(range(start, high + 1))
        if len(sizes) < 3:
            raise ProgramError(
                f"export: {name!r} can only be from {low} to {high}; give it a wider range (from 2 on), or export the "
                "function for each size"
            )
        for at, probe in enumerate(probes):
            probe[name] = sizes[(at + place * (at + 2)) % len(sizes)]
    large = {name: min(high, _LARGE - place) for place, (name, (_, high)) in enumerate(bounds.items())}
    more = [large, given] if all(given[name] >= low for name, (low, _) in bounds.items()) else [large]
    return [*probes, *[probe for probe in more if probe not in probes]]


class Sizes:
    """The named sizes of several recordings, and the symbols for them."""

    def __init__(self, probes: Sequence[dict[str, int]], symbols: dict[str, Any], name: str) -> None:
        self._probes = probes
        self._symbols = symbols
        self._name = name
        self._found: dict[Any, Expression | None] = {}

    # --- numbers ------------------------------------------------------------------------------------------------

    def number(self, values: Sequence[int]) -> Any:
        """The integer that has these values in the recordings, as an expression of the symbols, or None."""
        if len(set(values)) == 1:
            return values[0]
        found = self._fitted(tuple(values), len(values))
        return None if found is None else found(self._symbols)

    def _fitted(self, values: tuple[int, ...], count: int) -> Expression | None:
        """The expression that has these values in the first `count` recordings."""
        key = (values, count)
        if key not in self._found:
            self._found[key] = _expression(values, self._probes[:count])
        return self._found[key]

    def scalar(self, values: Sequence[Number], dtype: Any, where: str) -> Any:
        """A number in the recordings, as an array that depends on the symbols; `ProgramError` if there is none."""
        if all(a == values[0] or (a != a and values[0] != values[0]) for a in values):
            return jnp.asarray(values[0], dtype)
        for guess, back in _FORMS:
            whole = [
                _whole(guess, back, value) for value in values[:_PROBES]
            ]  # of large sizes, a float says too little
            if any(n is None for n in whole):
                continue
            found = self._fitted(tuple(cast("list[int]", whole)), len(whole))
            if found is None or not all(map(_agrees, [back(found(p)) for p in self._probes], values)):
                continue
            wide = jnp.asarray(found(self._symbols), jnp.int64)
            exact = wide if np.issubdtype(dtype, np.integer) else wide.astype(jnp.float64)
            return jnp.asarray(back(exact), dtype)
        raise self._differ(where, f"a number is {_listed(values)}")

    def _merged(self, values: Sequence[Any], where: str) -> Any:
        """One parameter of an operator from those of the recordings."""
        first = values[0]
        if isinstance(first, (int, np.integer)) and not isinstance(first, bool):
            found = self.number([int(value) for value in values])
            if found is None:
                raise self._differ(where, f"a size is {_listed(values)}")
            return found
        if type(first) is tuple:
            parts = cast("Sequence[tuple[Any, ...]]", values)
            if len({len(part) for part in parts}) > 1:
                raise self._differ(where, f"a parameter is {_listed(values)}")
            return tuple([self._merged(column, where) for column in zip(*parts, strict=True)])
        if isinstance(first, (Jaxpr, ClosedJaxpr)):
            if len({str(value) for value in values}) > 1:
                raise self._differ(where, "its inner function depends on sizes")
            return first
        if callable(first) or all(_same(value, first) for value in values):
            return first
        raise self._differ(where, f"a parameter is {_listed(values)}")

    def _differ(self, where: str, what: str) -> ProgramError:
        sizes = "; ".join(", ".join(f"{name}={size}" for name, size in probe.items()) for probe in self._probes[:3])
        return ProgramError(
            f"{self._name}: it cannot be exported for all sizes, as {where} depends on them in a way that cannot be "
            f"expressed: {what}, for {sizes}, …. Let fewer dims change, or compute without Python numbers made of sizes"
        )

    # --- operators ----------------------------------------------------------------------------------------------

    def evaluate(self, closed: Sequence[ClosedJaxpr], args: Sequence[Any]) -> list[Any]:
        """The results of the recordings, which have the same operators, on arrays with symbolic sizes."""
        consts = [self.constant(values) for values in zip(*[one.consts for one in closed], strict=True)]
        return self._run([one.jaxpr for one in closed], [*consts, *args])

    def constant(self, values: Sequence[Any]) -> Any:
        """An array that has these values in the recordings."""
        first = np.asarray(values[0])
        if all(_same_array(value, first) for value in values):
            return jnp.asarray(first)
        if first.shape == () and first.dtype.kind in "iuf":
            return self.scalar([np.asarray(value).item() for value in values], first.dtype, "a constant")
        raise self._differ("a constant tensor", f"its shapes are {_listed([np.shape(value) for value in values])}")

    def _run(self, jaxprs: Sequence[Jaxpr], args: Sequence[Any]) -> list[Any]:
        numbers: list[dict[Any, int]] = [{} for _ in jaxprs]
        entries: list[Any] = []

        def define(variables: Sequence[Any], value: Any) -> None:
            for table, variable in zip(numbers, variables, strict=True):
                table[variable] = len(entries)
            entries.append(value)

        def read(atoms: Sequence[Any], where: str) -> Any:
            literal = [isinstance(atom, Literal) for atom in atoms]
            if all(literal):
                return self.scalar([np.asarray(atom.val).item() for atom in atoms], atoms[0].aval.dtype, where)
            places = {-1 if lit else t[a] for t, a, lit in zip(numbers, atoms, literal, strict=True)}
            if len(places) > 1:
                raise self._differ(where, "it reads other values")
            return entries[places.pop()]

        inputs = [[*jaxpr.constvars, *jaxpr.invars] for jaxpr in jaxprs]
        for variables, value in zip(zip(*inputs, strict=True), args, strict=True):
            define(variables, value)
        lengths = {len(jaxpr.eqns) for jaxpr in jaxprs}
        for eqns in zip(*[jaxpr.eqns for jaxpr in jaxprs], strict=False):
            where = _place(eqns[0])
            names = {eqn.primitive.name for eqn in eqns}
            if len(names) > 1 or len({(len(eqn.invars), len(eqn.outvars)) for eqn in eqns}) > 1:
                raise self._differ(where, f"the operators are {_listed(sorted(names))}")
            operands = [read(atoms, where) for atoms in zip(*[eqn.invars for eqn in eqns], strict=True)]
            results = self._apply(eqns, operands, where)
            for variables, value in zip(zip(*[eqn.outvars for eqn in eqns], strict=True), results, strict=True):
                define(variables, value)
        if len(lengths) > 1:
            raise self._differ("the number of operators", f"it is {_listed(sorted(lengths))}")
        return [read(atoms, "a result") for atoms in zip(*[jaxpr.outvars for jaxpr in jaxprs], strict=True)]

    def _apply(self, eqns: Sequence[Any], operands: list[Any], where: str) -> Sequence[Any]:
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
            return control(eqns, operands, where)
        params = {key: self._merged([eqn.params[key] for eqn in eqns], where) for key in first.params}
        try:
            results = first.primitive.bind(*operands, **params)
        except Exception as error:
            raise ProgramError(
                f"{self._name}: {where} cannot be exported for all sizes ({reason_of(error)}); let fewer dims "
                "change, or bound them with Dim(name, min=…, max=…)"
            ) from error
        return results if first.primitive.multiple_results else [results]

    def _body(self, bodies: Sequence[Any]) -> Callable[..., list[Any]]:
        if isinstance(bodies[0], ClosedJaxpr):
            return lambda *args: self.evaluate(bodies, args)
        return lambda *args: self._run(bodies, args)

    def _scan(self, eqns: Sequence[Any], operands: list[Any], where: str) -> Sequence[Any]:
        params = eqns[0].params
        body = self._body([eqn.params["jaxpr"] for eqn in eqns])
        n, m = params["num_consts"], params["num_carry"]
        consts, init, xs = operands[:n], operands[n : n + m], operands[n + m :]

        def step(carry: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
            results = body(*consts, *carry, *x)
            return results[:m], results[m:]

        length = None if xs else self._merged([eqn.params["length"] for eqn in eqns], where)
        carry, ys = lax.scan(step, init, xs, length=length, reverse=params["reverse"])
        return [*carry, *ys]

    def _while(self, eqns: Sequence[Any], operands: list[Any], where: str) -> Sequence[Any]:
        del where
        n, m = eqns[0].params["cond_nconsts"], eqns[0].params["body_nconsts"]
        test = self._body([eqn.params["cond_jaxpr"] for eqn in eqns])
        body = self._body([eqn.params["body_jaxpr"] for eqn in eqns])
        tests, consts = operands[:n], operands[n : n + m]
        return lax.while_loop(
            lambda carry: test(*tests, *carry)[0], lambda carry: body(*consts, *carry), operands[n + m :]
        )

    def _cond(self, eqns: Sequence[Any], operands: list[Any], where: str) -> Sequence[Any]:
        del where
        columns = zip(*[eqn.params["branches"] for eqn in eqns], strict=True)
        return lax.switch(operands[0], [self._body(column) for column in columns], *operands[1:])

    def _solve(self, eqns: Sequence[Any], operands: list[Any], where: str) -> Sequence[Any]:
        """The solution; the other functions of `lax.custom_linear_solve` are only for derivatives."""
        del where
        lengths = eqns[0].params["const_lengths"]
        start = lengths.matvec + lengths.vecmat
        consts, rest = operands[start : start + lengths.solve], operands[sum(lengths) :]
        return self._body([eqn.params["jaxprs"].solve for eqn in eqns])(*consts, *rest)


def _line(values: Sequence[int], at: Sequence[int]) -> tuple[int, int] | None:
    """(a, c) with value = a * at + c."""
    pair = next(((i, j) for i, j in combinations(range(len(at)), 2) if at[i] != at[j]), None)
    if pair is None:
        return None
    a, rest = divmod(values[pair[0]] - values[pair[1]], at[pair[0]] - at[pair[1]])
    c = values[0] - a * at[0]
    return (a, c) if a and not rest and all(a * x + c == v for x, v in zip(at, values, strict=True)) else None


def _plane(values: Sequence[int], at: Sequence[int], there: Sequence[int]) -> tuple[int, int, int] | None:
    """(a, b, c) with value = a * at + b * there + c, where four recordings agree at least."""
    x1, x2, y1, y2 = at[1] - at[0], at[2] - at[0], there[1] - there[0], there[2] - there[0]
    v1, v2 = values[1] - values[0], values[2] - values[0]
    determinant = x1 * y2 - x2 * y1
    if not determinant or len(values) < 4:
        return None
    a, b = Fraction(v1 * y2 - v2 * y1, determinant), Fraction(x1 * v2 - x2 * v1, determinant)
    if a.denominator != 1 or b.denominator != 1:
        return None
    c = values[0] - int(a) * at[0] - int(b) * there[0]
    fits = all(int(a) * x + int(b) * y + c == v for x, y, v in zip(at, there, values, strict=True))
    return (int(a), int(b), c) if fits else None


def _whole(guess: Callable[[float], float], back: Callable[[Any], Any], value: Number) -> int | None:
    """The whole number that a float follows from, up to the precision of float32."""
    try:
        n = round(guess(float(value)))
        return n if n and abs(n) < 1 << 52 and _agrees(back(n), value) else None
    except (ArithmeticError, ValueError, TypeError):  # no finite number; or back(n) is complex
        return None


def _agrees(one: Number, other: Number) -> bool:
    return isclose(one, other, rel_tol=3e-7)


def _expression(values: Sequence[int], probes: Sequence[dict[str, int]]) -> Expression | None:
    """How numbers follow from the named sizes: a line over a product of them, over two, or over a rounded quotient."""
    names = list(probes[0])
    products = [chosen for degree in (1, 2, 3) for chosen in combinations_with_replacement(names, degree)]
    terms = [(chosen, [prod([probe[name] for name in chosen]) for probe in probes]) for chosen in products]
    for chosen, at in terms:
        if line := _line(values, at):
            return lambda sizes: prod([sizes[name] for name in chosen]) * line[0] + line[1]
    for (one, at), (other, there) in combinations(terms, 2):
        if plane := _plane(values, at, there):
            a, b, c = plane
            return lambda sizes: prod([sizes[n] for n in one]) * a + prod([sizes[n] for n in other]) * b + c
    for name in names:
        for divisor in range(2, _LARGEST_DIVISOR + 1):
            for shift in range(divisor):
                if line := _line(values, [(probe[name] + shift) // divisor for probe in probes]):
                    return lambda sizes: (sizes[name] + shift) // divisor * line[0] + line[1]
    return None


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return _same_array(one, other)
    return type(one) is type(other) and bool(one == other or (one != one and other != other))


def _same_array(one: Any, other: Any) -> bool:
    a, b = np.asarray(one), np.asarray(other)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _listed(values: Sequence[Any]) -> str:
    texts = list(dict.fromkeys(map(str, values)))
    return ", ".join(texts[:3]) + (", …" if len(texts) > 3 else "")


def _place(eqn: Any) -> str:
    """The operator that an equation belongs to."""
    stack = str(eqn.source_info.name_stack)
    return f"the operator {stack.rsplit('/', 1)[-1] or eqn.primitive.name!r}"


def reason_of(error: Exception) -> str:
    """The first sentence of one of jax's errors, which go on for pages."""
    return str(error).split("\n", 1)[0].strip().rstrip(".")[:300]


def symbols_for(bounds: dict[str, tuple[int, int]], most: int) -> dict[str, Any]:
    """jax's symbolic dims with these bounds; an upper bound of `most` is none."""
    if not bounds:
        return {}
    constraints = [f"{name} >= {low}" for name, (low, _) in bounds.items()]
    constraints += [f"{name} <= {high}" for name, (_, high) in bounds.items() if high < most]
    found = jax.export.symbolic_shape(",".join(bounds), constraints=constraints)
    assert all(map(is_symbolic_dim, found)), "names are no numbers"
    return dict(zip(bounds, found, strict=True))
