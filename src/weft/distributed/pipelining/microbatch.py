"""Batches as microbatches, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeAlias

import jax

from weft._base.types import Arg, Args, Kwargs, PyTree
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.errors import PreconditionError, ValueRangeError

__all__ = ["TensorChunkSpec", "merge_chunks", "split_args_kwargs_into_chunks"]


class TensorChunkSpec:
    """The dim along which a tensor is divided into microbatches, or along which microbatches are put together."""

    def __init__(self, split_dim: int) -> None:
        self.split_dim = split_dim

    def __repr__(self) -> str:
        return f"TensorChunkSpec({self.split_dim})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorChunkSpec) and other.split_dim == self.split_dim

    def __hash__(self) -> int:
        return hash(self.split_dim)

    @staticmethod
    def from_tuple(chunk_dims: tuple[int, ...]) -> tuple[TensorChunkSpec, ...]:
        """The specs of positional arguments that are divided along these dims."""
        return jax.tree.map(TensorChunkSpec, chunk_dims)

    @staticmethod
    def from_dict(chunk_dims: dict[str, int]) -> dict[str, TensorChunkSpec]:
        """The specs of keyword arguments that are divided along these dims."""
        return jax.tree.map(TensorChunkSpec, chunk_dims)


Arguments: TypeAlias = tuple[Args, Kwargs]
"""What a call gets, by position and by keyword."""

Specs: TypeAlias = tuple[tuple[TensorChunkSpec | None, ...], dict[str, TensorChunkSpec | None]]
"""How arguments are divided, by position and by keyword."""

_FIRST_DIM = TensorChunkSpec(0)


def split_args_kwargs_into_chunks(
    args: Args,
    kwargs: Kwargs | None,
    chunks: int,
    args_chunk_spec: Sequence[TensorChunkSpec | None] | None = None,
    kwargs_chunk_spec: Mapping[str, TensorChunkSpec | None] | None = None,
) -> tuple[list[Args], list[Kwargs]]:
    """The arguments of each microbatch, positional and by keyword.

    Tensors, also within containers, are divided as by `tensor_split` along the dim of their spec, by default the first:
    if sizes are not divisible, the first microbatches are larger. Tensors whose spec is None, and what is no tensor,
    are the same in each. There are fewer microbatches than `chunks` if the smallest tensor has fewer elements along its
    dim. `AssertionError` if there are not as many specs as arguments.
    """
    values: Arguments = tuple(args), dict(kwargs or {})
    specs: Specs = (
        (_FIRST_DIM,) * len(args) if args_chunk_spec is None else tuple(args_chunk_spec),
        dict.fromkeys(values[1], _FIRST_DIM) if kwargs_chunk_spec is None else dict(kwargs_chunk_spec),
    )
    _require_specs(values, specs)
    sizes: list[int] = []

    def note_sizes(spec: TensorChunkSpec | None, value: object) -> None:
        sizes.extend(_sizes(spec, value))

    jax.tree.map(note_sizes, specs, values, is_leaf=_is_spec)
    # Rather fewer microbatches than empty ones, which stages would have to compute.
    count = min([chunks, *sizes])

    def column(spec: TensorChunkSpec | None, value: object) -> _Column:
        return _Column(_divided(value, spec, count))

    columns = jax.tree.map(column, specs, values, is_leaf=_is_spec)
    rows: list[Arguments] = [jax.tree.map(partial(_cell, at), columns) for at in range(count)]
    return [positional for positional, _ in rows], [named for _, named in rows]


class _Column:
    """The parts of one argument, by microbatch."""

    def __init__(self, cells: list[object]) -> None:
        self.cells = cells


def _cell(at: int, column: _Column) -> object:
    return column.cells[at]


def _is_spec(spec: object) -> bool:
    return spec is None or isinstance(spec, TensorChunkSpec)


def _require_specs(values: Arguments, specs: Specs) -> None:
    if len(values[0]) != len(specs[0]):
        raise PreconditionError(
            f"args_chunk_spec must have an entry for each of the {len(values[0])} positional arguments, but has "
            f"{len(specs[0])}"
        )
    if values[1].keys() != specs[1].keys():
        raise PreconditionError(
            f"kwargs_chunk_spec must have the keys of the keyword arguments, {sorted(values[1])}, but has "
            f"{sorted(specs[1])}"
        )
    _require_kind(specs)


def _require_kind(specs: PyTree) -> None:
    for spec in jax.tree.leaves(specs, is_leaf=_is_spec):
        if not _is_spec(spec):
            raise PreconditionError(f"a spec is a TensorChunkSpec or None, but one is {spec!r}")


def _sizes(spec: TensorChunkSpec | None, value: object) -> list[int]:
    tensors = [leaf for leaf in jax.tree.leaves(value) if isinstance(leaf, Tensor)]
    return [] if spec is None else [tensor.size(spec.split_dim) for tensor in tensors]


def _divided(value: PyTree, spec: TensorChunkSpec | None, count: int) -> list[object]:
    """An argument's parts: that of each microbatch has the argument's structure."""
    leaves, tree = jax.tree.flatten(value)
    parts = [
        leaf.tensor_split(count, spec.split_dim) if spec is not None and isinstance(leaf, Tensor) else [leaf] * count
        for leaf in leaves
    ]
    return [jax.tree.unflatten(tree, [part[at] for part in parts]) for at in range(count)]


def merge_chunks(chunks: list[PyTree], chunk_spec: PyTree) -> PyTree:
    """The results of all microbatches as those of the batch.

    `chunk_spec` has the results' structure, or is one spec for all of them; by default tensors are put together along
    the first dim. What is no tensor, or has None as its spec, must be equal in all microbatches. `ValueError` if the
    structures differ.
    """
    spec = _FIRST_DIM if chunk_spec is None else chunk_spec
    _require_kind(spec)
    if not chunks:
        raise ValueRangeError("merge_chunks() needs the results of at least one microbatch")
    try:
        return jax.tree.map(_merged, spec, *chunks, is_leaf=_is_spec)
    except ValueError as error:
        raise ValueRangeError(f"Chunk {chunks[0]} did not match chunk spec {chunk_spec}: {error}") from error


def _merged(spec: TensorChunkSpec | None, *values: PyTree) -> PyTree:
    return jax.tree.map(partial(_merged_leaf, spec), *values)


def _merged_leaf(spec: TensorChunkSpec | None, *leaves: Arg) -> object:
    first = leaves[0]
    if spec is not None and isinstance(first, Tensor):
        return op.cat(list(leaves), spec.split_dim)
    if not all(first.equal(leaf) if isinstance(first, Tensor) else first == leaf for leaf in leaves):
        raise PreconditionError(
            f"results without a dim along which to put them together must be equal, but got {leaves}; give "
            "output_merge_spec, or do not return them"
        )
    return first
