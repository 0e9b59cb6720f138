"""Signatures for all sizes: an operator's body is traced once with symbols for the sizes that change.

jax traces a body in about a millisecond, which a program with changing lengths would pay for every length. If some
known signatures of an operator differ from a new one only in the same sizes, the body is traced once more with symbols
for these sizes (`jax.export.symbolic_shape`). For this and every later signature of the kind, the trace is used with
numbers in place of the symbols. A body that branches on a size cannot be traced so; it is traced for each size as
before.

What a body does may depend on whether sizes are equal, 0 or 1. So a symbol stands for numbers from 2 on, equal sizes
have one symbol, and the numbers of symbols differ from each other and from the sizes that do not change.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast

import jax
from jax.export import symbolic_shape

from weft._base.types import AnyCallable, Arg, Args
from weft._lazy.aval import Aval
from weft._lazy.call import BoundOp
from weft._lazy.precondition import Precondition
from weft._lazy.trace import SizeValues, SymbolicSize, Trace
from weft.ops._kinds import Kind

Numbers = tuple[int, ...]
"""All sizes in the types and static arguments of a call, in order."""

T = TypeVar("T")
Types = list[tuple[tuple[int, ...], Any]]

_EXAMPLES = 2  # that a new signature has to differ from in the same sizes
_MOST_EXAMPLES = 64


Grads = Callable[..., Sequence[jax.Array | None]]
"""(arrays, outputs, cotangents of the main outputs) -> one gradient or None per input."""


class Derivatives:
    """How an application is differentiated.

    grads   the row's hand-written derivative, or None
    native  the same by a native body, or None
    cache   derivatives by which inputs and outputs take part (`_autograd/derive.py`), and others by their own keys
    """

    __slots__ = ("cache", "grads", "native")

    def __init__(self, grads: Grads | None, native: Grads | None = None) -> None:
        self.grads = grads
        self.native = native
        self.cache: dict[Hashable, Arg] = {}


class General:
    """An operator's function with symbols for some sizes; it takes a signature's place in differentiation.

    fn, main, derivatives, precondition   as in `Signature`
    structs   those of the inputs
    trace     the trace of `fn`
    checked   whether the precondition was traced, and `check` the result, or None (`_lazy/checks.py`)
    """

    __slots__ = ("check", "checked", "derivatives", "fn", "main", "precondition", "structs", "trace")

    def __init__(
        self,
        fn: AnyCallable,
        grads: Grads | None,
        main: int,
        structs: Sequence[jax.ShapeDtypeStruct],
        trace: Trace,
        precondition: Precondition | None = None,
    ) -> None:
        self.fn = fn
        self.main = main
        self.structs = structs
        self.trace = trace
        self.precondition = precondition
        self.derivatives = Derivatives(grads)
        self.checked = False
        self.check: Trace | None = None

    def results(self) -> list[jax.ShapeDtypeStruct]:
        """The structs of the outputs."""
        return [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in self.trace.result_avals()]


class _SizePattern:
    """Which sizes have symbols: the positions in one group share a symbol; all other sizes are fixed."""

    __slots__ = ("fixed", "general", "groups", "names")

    def __init__(self, numbers: Numbers, changing: Sequence[int]) -> None:
        groups: dict[int, list[int]] = {}
        for position in changing:
            groups.setdefault(numbers[position], []).append(position)
        self.groups = list(groups.values())
        self.fixed = [(at, number) for at, number in enumerate(numbers) if at not in set(changing)]
        self.names = [f"n{at}" for at in range(len(self.groups))]
        self.general: General | None = None

    def sizes(self, numbers: Numbers) -> SizeValues | None:
        """The numbers of the symbols for these sizes, or None if they do not fit the pattern."""
        fixed: set[int] = set()
        for at, number in self.fixed:
            if numbers[at] != number:
                return None
            fixed.add(number)
        letters: list[int] = []
        for group in self.groups:
            number = numbers[group[0]]
            if number < 2 or number in fixed or number in letters or any(numbers[at] != number for at in group):
                return None
            letters.append(number)
        return SizeValues(dict(zip(self.names, letters, strict=True)))

    def symbols(self, length: int) -> list[SymbolicSize]:
        """All sizes, with symbols for those that change."""
        sizes: list[SymbolicSize] = [0] * length
        for at, number in self.fixed:
            sizes[at] = number
        bounds = [f"{name} >= 2" for name in self.names]
        letters = symbolic_shape(",".join(self.names), constraints=bounds)
        for letter, group in zip(letters, self.groups, strict=True):
            for at in group:
                sizes[at] = letter
        return sizes


class Family:
    """The signatures that differ only in sizes.

    examples  sizes and result types of signatures that were traced with numbers
    patterns  the patterns of sizes that have a general trace
    """

    __slots__ = ("_of_shapes", "_refused", "examples", "patterns")

    def __init__(self, of_shapes: Iterable[int]) -> None:
        """`of_shapes`: positions of the numbers in shapes. Others, such as exponents, are sizes if they equal one."""
        self._of_shapes = frozenset(of_shapes)
        self.examples: list[tuple[Numbers, Types]] = []
        self.patterns: list[_SizePattern] = []
        self._refused: set[tuple[int, ...]] = set()

    def find(
        self, numbers: Numbers, generalise: Callable[[Iterator[SymbolicSize]], General]
    ) -> tuple[General, SizeValues] | None:
        """The general trace for these numbers; `generalise` makes it if there are enough examples."""
        for pattern in self.patterns:
            sizes = pattern.sizes(numbers)
            if sizes is not None and pattern.general is not None:
                return pattern.general, sizes
        return self._generalised(numbers, generalise) if len(self.examples) >= _EXAMPLES else None

    def add(self, numbers: Numbers, types: Types) -> None:
        """Remember a signature that was traced with numbers."""
        if len(self.examples) >= _MOST_EXAMPLES:
            del self.examples[0]
        self.examples.append((numbers, types))

    def _generalised(
        self, numbers: Numbers, generalise: Callable[[Iterator[SymbolicSize]], General]
    ) -> tuple[General, SizeValues] | None:
        differing = Counter(
            tuple([at for at, (a, b) in enumerate(zip(example, numbers, strict=True)) if a != b])
            for example, _ in self.examples
        )
        for changing, times in differing.items():
            if times < _EXAMPLES or not changing or changing in self._refused:
                continue
            pattern = _SizePattern(numbers, changing)
            if any(self._of_shapes.isdisjoint(group) for group in pattern.groups):
                continue
            sizes = pattern.sizes(numbers)
            examples = [(s, types) for example, types in self.examples if (s := pattern.sizes(example)) is not None]
            if sizes is None or len(examples) < _EXAMPLES:
                continue
            general = with_letters(partial(_checked, generalise, pattern.symbols(len(numbers)), examples))
            if general is None:
                self._refused.add(changing)
                continue
            pattern.general = general
            self.patterns.append(pattern)
            return general, sizes
        return None


def _checked(
    generalise: Callable[[Iterator[SymbolicSize]], General],
    symbols: list[SymbolicSize],
    examples: list[tuple[SizeValues, Types]],
) -> General:
    """The general trace; `ValueError` if it disagrees with what is known about some signatures."""
    general = generalise(iter(symbols))
    if any(general.trace.with_sizes(sizes).types() != types for sizes, types in examples):
        raise ValueError("the types of the results are not those of the examples")
    return general


def with_letters(trace: Callable[[], T]) -> T | None:
    """The result of `trace`, a function that traces with symbolic sizes; None if the body needs numbers.

    It runs in its own thread. jax tests whether a symbol is a number, and leaves the exception in a reference cycle,
    whose frames would keep everything alive that the callers refer to, until the next garbage collection.
    """
    results: list[T] = []

    def run() -> None:
        with suppress(Exception):  # in whatever way the body, or jax below it, says so
            results.append(trace())

    thread = threading.Thread(target=run, name="trace for all sizes")
    with suppress(RuntimeError):  # no thread starts when the process ends
        thread.start()
        thread.join()
    return results[0] if results else None


def is_valid(types: Types) -> bool:
    """Whether results can have these types; if numbers do not fit, sizes are less than 1."""
    return all(size > 0 for shape, _ in types for size in shape)


def filled(avals: Sequence[Aval], sizes: Iterator[SymbolicSize]) -> list[jax.ShapeDtypeStruct]:
    """The structs of inputs of these types, with other sizes."""
    return [jax.ShapeDtypeStruct(tuple([next(sizes) for _ in a.shape]), a.dtype.numpy) for a in avals]


def static_with(call: BoundOp, sizes: Iterator[SymbolicSize]) -> Args:
    """The static arguments of a call, with other sizes for their integers."""
    return tuple(
        [
            _with_sizes(entry, sizes) if param.kind in _SIZED else entry
            for param, entry in zip(call.op.params, call.static, strict=True)
        ]
    )


def _with_sizes(entry: object, sizes: Iterator[SymbolicSize]) -> Arg:
    if type(entry) is int:
        return next(sizes)
    if type(entry) is tuple:
        return tuple([_with_sizes(part, sizes) for part in cast("tuple[Any, ...]", entry)])
    return entry


# --- all families ---

# no cell: a cache, keyed by all that its entries depend on; another default type clears it
_families: dict[Hashable, Family] = {}
_MOST_FAMILIES = 65_536
_SIZED = frozenset({Kind.SHAPE, Kind.STATIC})
_NUMBER = object()


def family_of(call: BoundOp, avals: Sequence[Aval]) -> tuple[Family, Numbers]:
    """The family that a call on inputs of these types belongs to, and its sizes there."""
    form, numbers = form_of(call, avals)
    family = _families.get(form)
    if family is None:
        if len(_families) >= _MOST_FAMILIES:
            _families.clear()
        kinds = [Kind.SHAPE] * sum(len(aval.shape) for aval in avals)
        for param, entry in zip(call.op.params, call.static, strict=True):
            inside: list[int] = []
            _without_numbers(entry if param.kind in _SIZED else None, inside)
            kinds += [param.kind] * len(inside)
        family = _families.setdefault(form, Family([at for at, kind in enumerate(kinds) if kind is Kind.SHAPE]))
    return family, numbers


def forget_families() -> None:
    """Forget all families, because an operator was redefined."""
    _families.clear()


def form_of(call: BoundOp, avals: Sequence[Aval]) -> tuple[Hashable, Numbers]:
    """The key of all calls that differ from this one only in sizes, and the sizes."""
    numbers = [size for aval in avals for size in aval.shape]
    static = [
        _without_numbers(entry, numbers) if param.kind in _SIZED else entry
        for param, entry in zip(call.op.params, call.static, strict=True)
    ]
    types = [(len(a.shape), a.dtype, a.weak, a.device) for a in avals]
    return (call.op, call.device, tuple(static), tuple(types)), tuple(numbers)


def _without_numbers(entry: object, numbers: list[int]) -> Arg:
    """A static argument with a mark for every integer; the integers are appended to `numbers`."""
    if type(entry) is int:
        numbers.append(entry)
        return _NUMBER
    if type(entry) is tuple:
        return tuple([_without_numbers(part, numbers) for part in cast("tuple[Any, ...]", entry)])
    return entry
