"""`weft.export.Dim`: sizes that may differ between calls of an exported program."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from enum import Enum
from typing import Any, ClassVar, TypeAlias

from weft._base.guards import is_a, is_dict, is_list_or_tuple, is_mapping
from weft._base.types import AnyCallable, Arg, Args, Kwargs, PyTree
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, PreconditionError, ProgramError, ValueRangeError
from weft.export._structure import parts_of

MOST = 1 << 31
"""The upper bound where none is given."""


class DimHint(Enum):
    """Whether a size may change, without a name for it."""

    AUTO = "AUTO"
    DYNAMIC = "DYNAMIC"
    STATIC = "STATIC"

    def __repr__(self) -> str:
        return f"Dim.{self.value}"


class Dim:
    """A named size that may differ between calls, from `min` to `max`.

    Dims with one name always have one size. `2 * dim` and `dim + 1` are sizes that follow from it.
    """

    AUTO: ClassVar[DimHint] = DimHint.AUTO
    """It may change, unless the function cannot be recorded that way."""
    DYNAMIC: ClassVar[DimHint] = DimHint.DYNAMIC
    """It may change; an error if the function cannot be recorded that way."""
    STATIC: ClassVar[DimHint] = DimHint.STATIC
    """It stays as in the example."""

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not is_a(name, str) or not name.isidentifier():
            raise PreconditionError(f"Dim name must be a valid identifier, got {name!r}")
        low, high = 1 if min is None else min, MOST if max is None else max
        if low > high or high < 1:
            raise PreconditionError(f"Cannot create Dim with inconsistent min={min}, max={max}")
        self.__name__ = name
        self.min = low if low > 1 else 1
        self.max = high
        self.factor, self.offset = 1, 0

    def _with(self, factor: int, offset: int) -> Dim:
        new = Dim(self.__name__, min=self.min, max=self.max)
        new.factor, new.offset = factor, offset
        return new

    def __mul__(self, factor: int) -> Dim:
        if type(factor) is not int or factor < 1:
            raise PreconditionError(
                f"Attempted to multiply {self!r} with {factor}, where a positive integer was expected"
            )
        return self._with(self.factor * factor, self.offset * factor)

    __rmul__ = __mul__

    def __add__(self, offset: int) -> Dim:
        if type(offset) is not int:
            raise PreconditionError(f"Attempted to add {offset} to {self!r}, where an integer was expected")
        return self._with(self.factor, self.offset + offset)

    __radd__ = __add__

    def __sub__(self, offset: int) -> Dim:
        return self + -offset

    def __repr__(self) -> str:
        text = self.__name__ if self.factor == 1 else f"{self.factor}*{self.__name__}"
        return text + (f"{self.offset:+d}" if self.offset else "")

    def of(self, size: int) -> int:
        """This dim's size where the named size is `size`."""
        return self.factor * size + self.offset


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Several dims with the same bounds."""
    return tuple(Dim(name, min=min, max=max) for name in names)


@dataclass(frozen=True)
class SizeSpec:
    """The sizes of all inputs: for each tensor, in order, its dims; numbers are sizes that do not change.

    symbols  the named dims, and their sizes in the `example`
    guessed  the names of dims that `Dim.AUTO` has made
    """

    shapes: list[tuple[int | Dim, ...]]
    symbols: dict[str, Dim]
    example: dict[str, int]
    guessed: frozenset[str]

    def shapes_at(self, sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
        """The shapes for these sizes of the named dims."""
        return [tuple([d.of(sizes[d.__name__]) if isinstance(d, Dim) else d for d in shape]) for shape in self.shapes]


DynamicShapes: TypeAlias = Any
"""Which dims may differ: containers like the arguments, with an entry for each dim of each tensor."""


def size_spec(
    function: AnyCallable,
    args: Args,
    kwargs: Kwargs,
    dynamic_shapes: DynamicShapes,
    *,
    duck: bool = False,
) -> SizeSpec:
    """The sizes of the tensors in the arguments, in the order of `flatten((args, kwargs))`.

    With `duck`, sizes with `Dim.AUTO` that are equal in the example are one dim.
    """
    named = argument_names(function, args, kwargs)
    table = _by_argument(dynamic_shapes, [name for name, _ in named])
    tensors: list[tuple[str, Tensor, DynamicShapes]] = []
    for name, thing in named:
        tensors.extend(_tensors(thing, table.get(name), name))
    symbols: dict[str, Dim] = {}
    examples: dict[str, int] = {}
    guessed: dict[tuple[Arg, ...], Dim] = {}
    shapes: list[tuple[int | Dim, ...]] = []
    for name, tensor, spec in tensors:
        entries = _per_dim(spec, tensor, name)
        shape: list[int | Dim] = []
        for at, (size, entry) in enumerate(zip(tensor.shape, entries, strict=True)):
            if isinstance(entry, DimHint) and entry is not DimHint.STATIC:
                auto = entry is DimHint.AUTO
                # Equal sizes in an example may be a coincidence: each automatic dim is tried by itself first, and then
                # (`duck`) equal ones as one.
                apart = (name, at) if auto and not duck else ()
                entry = guessed.setdefault((auto, size, *apart), Dim(f"s{len(guessed)}"))
            if isinstance(entry, Dim):
                _note(entry, size, f"{name}.shape[{at}]", symbols, examples)
                shape.append(entry)
                continue
            if isinstance(entry, int) and entry != size:
                raise ProgramError(
                    f"export: dynamic_shapes says that {name}.shape[{at}] is {entry}, but in the example it is {size}"
                )
            shape.append(size)
        shapes.append(tuple(shape))
    automatic = frozenset(dim.__name__ for (auto, *_), dim in guessed.items() if auto)
    return SizeSpec(shapes, symbols, examples, automatic)


def argument_names(function: AnyCallable, args: Args, kwargs: Kwargs) -> list[tuple[str, Arg]]:
    """The arguments with the names of their parameters, positional ones first."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for at in range(len(args)):
        parameter = parameters[min(at, len(parameters) - 1)] if parameters else None
        if parameter is None or (at >= len(parameters) and parameter.kind is not parameter.VAR_POSITIONAL):
            names.append(f"arg{at}")
        elif parameter.kind is parameter.VAR_POSITIONAL:
            names.append(f"{parameter.name}_{at - parameters.index(parameter)}")
        else:
            names.append(parameter.name)
    return [*zip(names, args, strict=True), *kwargs.items()]


def _by_argument(dynamic_shapes: DynamicShapes, names: Sequence[str]) -> Mapping[str, PyTree]:
    if dynamic_shapes is None:
        return {}
    if is_mapping(dynamic_shapes):
        if not set(dynamic_shapes) <= set(names):
            raise ProgramError(
                "When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg names "
                f"{list(names)} of `inputs`, but here they are {list(dynamic_shapes)}"
            )
        return dynamic_shapes
    if is_list_or_tuple(dynamic_shapes):
        if len(dynamic_shapes) != len(names):
            raise ProgramError(
                f"`dynamic_shapes` has {len(dynamic_shapes)} elements, but `inputs` has {len(names)} elements: "
                f"{list(names)}"
            )
        return dict(zip(names, dynamic_shapes, strict=True))
    raise ArgumentError(
        "export: dynamic_shapes must be a dict by argument name, or a tuple or list in the order of the arguments, got "
        f"{type(dynamic_shapes).__name__}"
    )


def _tensors(thing: PyTree, spec: PyTree, path: str) -> Iterator[tuple[str, Tensor, PyTree]]:
    """The tensors in an argument, each with its part of the specification."""
    if isinstance(thing, Tensor):
        yield path, thing, spec
        return
    if spec is not None and type(spec) is type(thing) and is_dataclass(spec):
        spec = dict(parts_of(spec))
    parts = list(parts_of(thing))
    if spec is not None:
        _require_structure(thing, [key for key, _ in parts], spec, path)
    for key, part in parts:
        inner = spec.get(key) if is_mapping(spec) else None if spec is None else spec[key]
        yield from _tensors(part, inner, f"{path}[{key!r}]")


def _require_structure(thing: PyTree, keys: Sequence[object], spec: PyTree, path: str) -> None:
    """Refuse a specification of another structure than its argument; it may leave out keys of a dict."""
    if not keys and not is_dict(thing) and not is_list_or_tuple(thing):
        raise ProgramError(
            f"Cannot associate shape {spec!r} specified at `dynamic_shapes` for {path} to non-tensor type "
            f"{type(thing).__name__} (expected None)"
        )
    start = "Detected mismatch between the structure of `inputs` and `dynamic_shapes`:"
    if not (is_list_or_tuple(spec) if is_list_or_tuple(thing) else is_dict(spec)):
        raise ProgramError(f"{start} {path} is a container, and its entry there is {spec!r}")
    if is_dict(spec) and not set(spec) <= set(keys):
        raise ProgramError(f"{start} {path} has the keys {[*keys]}, and its entry there {[*spec]}")
    if is_list_or_tuple(spec) and len(spec) != len(keys):
        raise ProgramError(f"{start} {path} has {len(keys)} elements, and its entry there {len(spec)}")


def _per_dim(spec: PyTree, tensor: Tensor, name: str) -> list[DynamicShapes]:
    """The entry of a specification for each dim of a tensor; None where there is none."""
    rank = tensor.dim()
    if spec is None:
        return [None] * rank
    if isinstance(spec, DimHint):
        return [spec] * rank
    entries: list[DynamicShapes] = [None] * rank
    if is_mapping(spec):
        for dim, entry in spec.items():
            if type(dim) is not int or not -rank <= dim < rank:
                raise ProgramError(
                    f"export: dynamic_shapes[{name!r}] names dim {dim!r}, but {name} has {rank} dims, numbered from 0"
                )
            entries[dim] = entry
    elif is_list_or_tuple(spec):
        entries = list(spec)
        if len(entries) != rank:
            raise ProgramError(
                f"Expected dynamic shape spec {spec} specified at `dynamic_shapes[{name!r}]` to have the same length "
                f"as the actual tensor shape {list(tensor.shape)} (expected {rank}, but got {len(entries)} instead)"
            )
    else:
        raise ProgramError(
            f"export: dynamic_shapes[{name!r}] must be None, a dict from dims to Dim, or a sequence with an entry for "
            f"each dim, got {spec!r}"
        )
    for entry in entries:
        if entry is not None and not isinstance(entry, (Dim, DimHint)) and type(entry) is not int:
            raise ProgramError(
                f"export: dynamic_shapes[{name!r}] has {entry!r} for a dim; it must be a Dim, Dim.AUTO, Dim.DYNAMIC, "
                "Dim.STATIC, the size, or None"
            )
    return entries


def _note(dim: Dim, size: int, path: str, symbols: dict[str, Dim], examples: dict[str, int]) -> None:
    """Add a dim; its example must fit its bounds and the examples of the same name."""
    root = symbols.setdefault(dim.__name__, dim)
    if (root.min, root.max) != (dim.min, dim.max):
        raise ValueRangeError(f"export: there are two Dims called {dim.__name__!r} with other bounds; use one object")
    value, rest = divmod(size - dim.offset, dim.factor)
    if rest or not dim.min <= value <= dim.max:
        raise ProgramError(
            f"export: {path} is {size}, which {dim!r} cannot be, as {dim.__name__} is from {dim.min} to {dim.max}"
        )
    if examples.setdefault(dim.__name__, value) != value:
        raise ProgramError(
            f"export: in the example, {dim.__name__!r} has two sizes: {examples[dim.__name__]} and, at {path}, {value}"
        )
