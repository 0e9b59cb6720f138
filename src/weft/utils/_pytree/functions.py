"""Functions over trees: taking them apart, and mapping their leaves.

`is_leaf(node)` may say that something is a leaf although its type is a container.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import UnionType
from typing import Any, TypeAlias

from weft._base.types import AnyCallable
from weft.errors import ArgumentError, ValueRangeError
from weft.utils._pytree.nodes import SUPPORTED_NODES, KeyPath, PyTree, node_type
from weft.utils._pytree.spec import LeafSpec, TreeSpec

Predicate: TypeAlias = Callable[[PyTree], bool]
"""Whether something is true of an object."""

IsLeaf: TypeAlias = Callable[[Any], bool] | None
Types: TypeAlias = type | tuple[type, ...] | UnionType

_LEAF = LeafSpec()


# --- taking apart -----------------------------------------------------------------------------------------------


def tree_is_leaf(tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether something is a leaf: `is_leaf` says so, or its type is no registered container."""
    return (is_leaf is not None and is_leaf(tree)) or node_type(tree) not in SUPPORTED_NODES


def tree_flatten(tree: PyTree, is_leaf: IsLeaf = None) -> tuple[list[PyTree], TreeSpec]:
    """The leaves, in order, and the structure, from which `tree_unflatten` builds the tree again."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, is_leaf, leaves)


def _flatten(tree: PyTree, is_leaf: IsLeaf, leaves: list[PyTree]) -> TreeSpec:
    if tree_is_leaf(tree, is_leaf):
        leaves.append(tree)
        return _LEAF
    kind = node_type(tree)
    parts, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return TreeSpec(kind, context, [_flatten(part, is_leaf, leaves) for part in parts])


def tree_iter(tree: PyTree, is_leaf: IsLeaf = None) -> Iterator[PyTree]:
    """The leaves, one by one."""
    if tree_is_leaf(tree, is_leaf):
        yield tree
        return
    for part in SUPPORTED_NODES[node_type(tree)].flatten_fn(tree)[0]:
        yield from tree_iter(part, is_leaf)


def tree_leaves(tree: PyTree, is_leaf: IsLeaf = None) -> list[PyTree]:
    """The leaves, in order."""
    return list(tree_iter(tree, is_leaf))


def tree_structure(tree: PyTree, is_leaf: IsLeaf = None) -> TreeSpec:
    """The structure without the leaves."""
    return tree_flatten(tree, is_leaf)[1]


def arg_tree_leaves(*args: PyTree, **kwargs: PyTree) -> list[PyTree]:
    """The leaves of all arguments."""
    return tree_leaves([args, kwargs])


# --- mapping ----------------------------------------------------------------------------------------------------


def tree_map(func: AnyCallable, tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """The tree of `func(leaf, *others)`; the others are what `rests` have in place of the leaf.

    `ValueError` if one of `rests` has not the structure of `tree`, at least down to the leaves of `tree`.
    """
    leaves, treespec = tree_flatten(tree, is_leaf)
    return treespec.unflatten(map(func, leaves, *[treespec.flatten_up_to(rest) for rest in rests]))


def tree_map_(func: AnyCallable, tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """Call `func` as `tree_map` does, for what it does to the leaves; returns `tree`."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def map_only(type_or_types_or_pred: Types | Predicate, /) -> Callable[[AnyCallable], AnyCallable]:
    """A decorator: the function is called for what has the types, or meets the condition; all else is returned."""
    fits = _condition(type_or_types_or_pred)

    def decorated(func: AnyCallable) -> AnyCallable:
        @functools.wraps(func)
        def wrapped(x: PyTree) -> PyTree:
            return func(x) if fits(x) else x

        return wrapped

    return decorated


def _condition(chosen: Types | Predicate) -> Predicate:
    if isinstance(chosen, (type, tuple, UnionType)):
        return lambda x: isinstance(x, chosen)
    if not callable(chosen):
        raise ArgumentError("Argument must be a type, a tuple of types, or a callable.")
    return chosen


def tree_map_only(
    type_or_types_or_pred: Types | Predicate,
    /,
    func: AnyCallable,
    tree: PyTree,
    is_leaf: IsLeaf = None,
) -> PyTree:
    """`tree_map` over the leaves that have the types, or meet the condition."""
    return tree_map(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_map_only_(
    type_or_types_or_pred: Types | Predicate,
    /,
    func: AnyCallable,
    tree: PyTree,
    is_leaf: IsLeaf = None,
) -> PyTree:
    """`tree_map_` over the leaves that have the types, or meet the condition."""
    return tree_map_(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Predicate, tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether all leaves meet a condition."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred: Predicate, tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether a leaf meets a condition."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(type_or_types: Types, /, pred: Callable[..., bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether all leaves of these types meet a condition."""
    return all(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, type_or_types))


def tree_any_only(type_or_types: Types, /, pred: Callable[..., bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether a leaf of these types meets a condition."""
    return any(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, type_or_types))


def _broadcast_to_and_flatten(tree: PyTree, treespec: TreeSpec, is_leaf: IsLeaf = None) -> list[PyTree] | None:
    """For each leaf of a structure the leaf of `tree` that stands for it; None if `tree` is no upper part of it."""
    leaves, prefix = tree_flatten(tree, is_leaf)
    try:
        parts = prefix.flatten_up_to(treespec.unflatten([0] * treespec.num_leaves))
    except ValueError:
        return None
    return [leaf for leaf, part in zip(leaves, parts, strict=True) for _ in tree_iter(part, is_leaf)]


# --- with the paths of keys -------------------------------------------------------------------------------------


def tree_flatten_with_path(tree: PyTree, is_leaf: IsLeaf = None) -> tuple[list[tuple[KeyPath, PyTree]], TreeSpec]:
    """The leaves as (path, leaf), and the structure."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_leaves_with_path(tree: PyTree, is_leaf: IsLeaf = None) -> list[tuple[KeyPath, PyTree]]:
    """The leaves as (path, leaf); `ValueError` for a type that was registered without its keys."""
    return list(_with_path((), tree, is_leaf))


def _with_path(path: KeyPath, tree: PyTree, is_leaf: IsLeaf) -> Iterator[tuple[KeyPath, PyTree]]:
    if tree_is_leaf(tree, is_leaf):
        yield path, tree
        return
    with_keys = SUPPORTED_NODES[node_type(tree)].flatten_with_keys_fn
    if with_keys is None:
        raise ValueRangeError(
            f"Did not find a flatten_with_keys_fn for type: {node_type(tree)}. Please pass a flatten_with_keys_fn "
            "argument to register_pytree_node."
        )
    for key, part in with_keys(tree)[0]:
        yield from _with_path((*path, key), part, is_leaf)


def tree_map_with_path(func: AnyCallable, tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """`tree_map` of `func(path, leaf, *others)`."""
    leaves, treespec = tree_flatten_with_path(tree, is_leaf)
    others = [treespec.flatten_up_to(rest) for rest in rests]
    return treespec.unflatten(func(*leaf, *rest) for leaf, *rest in zip(leaves, *others, strict=True))
