"""Which sizes may change, by tensor or by further examples, in place of a structure like that of the arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from weft._base.guards import is_a, is_tuple
from weft._base.types import AnyCallable, Args, Kwargs, PyTree
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ProgramError
from weft.export._dims import Dim, DimHint, DynamicShapes, argument_names
from weft.export._structure import parts_of


class ShapesCollection:
    """`dynamic_shapes` by tensor: `shapes[x] = {0: Dim("batch")}`. Tensors without an entry do not change in size."""

    def __init__(self) -> None:
        self._shapes: dict[int, DynamicShapes] = {}
        self._tensors: list[Tensor] = []  # alive, so that an identity stands for one tensor

    def __setitem__(self, t: Tensor, shape: object) -> None:
        if not is_a(t, Tensor):
            raise ArgumentError(f"Cannot assign shape to non-tensor type {type(t)}")
        if self._shapes.setdefault(id(t), shape) != shape:
            raise ArgumentError(
                f"Shapes assigned to tensor do not match: expected {self._shapes[id(t)]}, got {shape}; give a tensor "
                "one entry"
            )
        self._tensors.append(t)

    def __getitem__(self, t: Tensor) -> DynamicShapes:
        return self._shapes.setdefault(id(t), {})

    def __len__(self) -> int:
        return len(self._shapes)

    def dynamic_shapes(self, m: Callable[..., object], args: Args, kwargs: Kwargs | None = None) -> dict[str, PyTree]:
        """The entries by argument name, as `export` takes them."""
        named = argument_names(_signature_of(m), args, kwargs or {})
        missing = set(self._shapes) - {id(x) for _, thing in named for x in _tensors_in(thing)}
        if missing:
            shape = next(list(x.shape) for x in self._tensors if id(x) in missing)
            raise ProgramError(
                f"export: the ShapesCollection has an entry for a tensor of shape {shape} that is none of the arguments"
            )
        return {name: _mapped(thing, lambda x: self._shapes.get(id(x))) for name, thing in named}


class AdditionalInputs:
    """`dynamic_shapes` by further examples: sizes in which these differ from the arguments may change."""

    def __init__(self) -> None:
        self._examples: list[tuple[Args, Kwargs]] = []

    def add(self, args: Args, kwargs: Kwargs | None = None) -> None:
        """Add an example."""
        if not is_tuple(args):
            raise ArgumentError(f"Representative args {args} must be a tuple")
        self._examples.append((args, kwargs or {}))

    def dynamic_shapes(self, m: Callable[..., object], args: Args, kwargs: Kwargs | None = None) -> dict[str, PyTree]:
        """The entries by argument name, as `export` takes them."""
        named = argument_names(_signature_of(m), args, kwargs or {})
        own = [x for _, thing in named for x in _tensors_in(thing)]
        changing: dict[int, dict[int, DimHint]] = {}
        for other_args, other_kwargs in self._examples:
            others = argument_names(_signature_of(m), other_args, other_kwargs)
            tensors = [x for _, thing in others for x in _tensors_in(thing)]
            if [(x.dim(), x.dtype) for x in own] != [(x.dim(), x.dtype) for x in tensors]:
                raise ProgramError("export: additional inputs must have tensors like those of the arguments, in order")
            for x, other in zip(own, tensors, strict=True):
                differing = {at: Dim.DYNAMIC for at, n in enumerate(other.shape) if n != x.shape[at]}
                changing.setdefault(id(x), {}).update(differing)
        return {name: _mapped(thing, lambda x: changing.get(id(x))) for name, thing in named}

    def verify(self, ep: Callable[..., object]) -> None:
        """Run a program with each of the examples."""
        for args, kwargs in self._examples:
            ep(*args, **kwargs)


def _signature_of(m: AnyCallable) -> AnyCallable:
    return getattr(m, "forward", m)


def _tensors_in(thing: PyTree) -> Iterator[Tensor]:
    if isinstance(thing, Tensor):
        yield thing
    for _, part in parts_of(thing):
        yield from _tensors_in(part)


def _mapped(thing: PyTree, spec: Callable[[Tensor], object]) -> PyTree:
    """The structure of an argument, with what `spec` says in place of tensors."""
    if isinstance(thing, Tensor):
        return spec(thing)
    parts = {key: _mapped(part, spec) for key, part in parts_of(thing)}
    return list(parts.values()) if isinstance(thing, (list, tuple)) else parts or None
