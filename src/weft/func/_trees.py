"""Nested containers of tensors: tuples, lists and dicts. Everything else is a leaf, None too.

`jax.tree` does not serve here: it sorts the keys of dicts, and programs rely on the order of parameters.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from weft._base.types import AnyCallable, PyTree


class Structure(NamedTuple):
    """The containers of a tree without its leaves; equal for equal containers, whatever the order of dicts.

    kind    the type of the container, or None for a leaf
    parts   the structures in it, by number or key
    """

    kind: type | None
    parts: dict[Any, Structure]


_LEAF = Structure(None, {})


def _parts(tree: PyTree) -> dict[Hashable, PyTree] | None:
    """What a container contains, by number or key; None for a leaf."""
    if isinstance(tree, dict):
        return cast("dict[Any, Any]", tree)
    if isinstance(tree, (tuple, list)):
        return dict(enumerate(cast("Sequence[Any]", tree)))
    return None


def flattened(tree: PyTree) -> tuple[list[PyTree], Structure]:
    """The leaves in order, and the structure around them."""
    leaves: list[Any] = []
    return leaves, _flattened(tree, leaves)


def _flattened(tree: PyTree, leaves: list[PyTree]) -> Structure:
    parts = _parts(tree)
    if parts is None:
        leaves.append(tree)
        return _LEAF
    return Structure(type(tree), {key: _flattened(part, leaves) for key, part in parts.items()})


def rebuilt(structure: Structure, leaves: Sequence[object]) -> PyTree:
    """The tree of a structure and its leaves."""
    return _rebuilt(structure, iter(leaves))


def _rebuilt(structure: Structure, leaves: Iterator[object]) -> PyTree:
    kind: Any = structure.kind
    if kind is None:
        return next(leaves)
    parts = {key: _rebuilt(part, leaves) for key, part in structure.parts.items()}
    if issubclass(kind, dict):
        mapping = kind()
        mapping.update(parts)
        return mapping
    return kind(*parts.values()) if hasattr(kind, "_fields") else kind(parts.values())


def mapped(function: AnyCallable, tree: PyTree, *others: PyTree) -> PyTree:
    """The tree of `function` of the leaves of trees of one structure."""
    leaves, structure = flattened(tree)
    return rebuilt(
        structure, [function(*each) for each in zip(leaves, *[flattened(x)[0] for x in others], strict=True)]
    )


def spread(prefix: PyTree, structure: Structure) -> list[PyTree] | None:
    """For each leaf of a structure the leaf of `prefix` that stands for it; None if `prefix` does not fit it."""
    parts = _parts(prefix)
    if parts is None:
        return [prefix] * _size(structure)
    if type(prefix) is not structure.kind or parts.keys() != structure.parts.keys():
        return None
    leaves: list[Any] = []
    for key, part in structure.parts.items():
        below = spread(parts[key], part)
        if below is None:
            return None
        leaves += below
    return leaves


def _size(structure: Structure) -> int:
    """The number of leaves."""
    return 1 if structure.kind is None else sum(map(_size, structure.parts.values()))


class _Star:
    def __repr__(self) -> str:
        return "*"


def described(structure: Structure) -> str:
    """A structure as text, with `*` for each leaf."""
    return repr(rebuilt(structure, [_Star()] * _size(structure)))
