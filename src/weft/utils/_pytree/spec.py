"""The structure of a tree, without its leaves."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping

from weft._base.types import AttributeValue, PyTree
from weft.errors import ArgumentError, ValueRangeError
from weft.utils._pytree.nodes import BUILTIN_TYPES, STANDARD_DICT_TYPES, SUPPORTED_NODES, Context, node_type

_STATE = ("type", "_context", "_children", "num_nodes", "num_leaves", "num_children")  # in the order of PyTorch's files


class TreeSpec:
    """A container and its context (see `NodeDef`) with the structures of its parts, or a leaf, with type None.

    Structures are equal if types, contexts and parts are; so the order of the keys of dicts counts.
    """

    __slots__ = ("_children", "_context", "num_children", "num_leaves", "num_nodes", "type")

    def __init__(self, type: type | None, context: Context, children_specs: Iterable[TreeSpec]) -> None:
        self.type = type
        self._context = context
        self._children = list(children_specs)
        self.num_children = len(self._children)
        self.num_nodes = 1 + sum(child.num_nodes for child in self._children)
        self.num_leaves = 1 if type is None else sum(child.num_leaves for child in self._children)

    @property
    def context(self) -> Context:
        """What is needed to build the container again, besides its parts."""
        return self._context

    def is_leaf(self) -> bool:
        """Whether this is a leaf."""
        return self.type is None

    def children(self) -> list[TreeSpec]:
        """The structures of the parts."""
        return self._children.copy()

    def child(self, index: int) -> TreeSpec:
        """The structure of one part."""
        return self._children[index]

    def unflatten(self, leaves: Iterable[PyTree]) -> PyTree:
        """The tree with these leaves; `ValueError` for another number of them than there were."""
        items = list(leaves)
        if len(items) != self.num_leaves:
            raise ValueRangeError(
                f"treespec.unflatten(leaves): `leaves` has length {len(items)} but the spec refers to a pytree that "
                f"holds {self.num_leaves} items ({self})."
            )
        following = iter(items)
        return self._built(following)

    def _built(self, leaves: Iterator[PyTree]) -> PyTree:
        if self.type is None:
            return next(leaves)
        return SUPPORTED_NODES[self.type].unflatten_fn(
            [child._built(leaves) for child in self._children], self._context
        )

    def flatten_up_to(self, tree: PyTree) -> list[PyTree]:
        """What a tree, of which this is the structure or its upper part, has in place of each leaf.

        `ValueError` if the tree has another structure. Dicts of all kinds fit each other.
        """
        if self.type is None:
            return [tree]
        parts = self._parts_of(tree)
        return [x for child, part in zip(self._children, parts, strict=True) for x in child.flatten_up_to(part)]

    def _parts_of(self, tree: PyTree) -> list[PyTree]:
        kind = node_type(tree)
        if self.type in STANDARD_DICT_TYPES and kind in STANDARD_DICT_TYPES:
            return self._values_of(tree)
        if kind != self.type:
            lead = "Node type" if self.type in BUILTIN_TYPES else "Type"
            raise ValueRangeError(f"{lead} mismatch; expected {self.type!r}, but got {kind!r}.")
        parts, context = SUPPORTED_NODES[kind].flatten_fn(tree)
        self._check_arity(len(parts))
        if kind is not deque and context != self._context:
            raise ValueRangeError(
                f"Node context mismatch for node type {self.type!r}; expected {self._context!r}, but got {context!r}."
            )
        return parts

    def _values_of(self, mapping: dict[Hashable, PyTree]) -> list[PyTree]:
        self._check_arity(len(mapping))
        keys = self._context[1] if self.type is defaultdict else self._context
        missing, extra = set(keys) - set(mapping), set(mapping) - set(keys)
        if missing or extra:
            detail = f"; missing key(s): {missing}" if missing else ""
            detail += f"; extra key(s): {extra}" if extra else ""
            raise ValueRangeError(f"Node keys mismatch{detail}.")
        return [mapping[key] for key in keys]

    def _check_arity(self, count: int) -> None:
        if count != self.num_children:
            raise ValueRangeError(f"Node arity mismatch; expected {self.num_children}, but got {count}.")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return (self.type, self._context, self._children) == (other.type, other._context, other._children)

    def __getstate__(self) -> list[AttributeValue]:
        return [getattr(self, name) for name in _STATE]

    def __setstate__(self, state: list[AttributeValue]) -> None:
        for name, value in zip(_STATE, state, strict=True):
            setattr(self, name, value)

    def __hash__(self) -> int:
        return hash((self.type, self.num_nodes, self.num_leaves, tuple(self._children)))

    def __repr__(self) -> str:
        return self._text(0)

    def _text(self, indent: int) -> str:
        if self.type is None:
            return "*"
        children = [child._text(indent + 2) for child in self._children]
        parts = (",\n" + " " * (indent + 2)).join(children)
        return f"TreeSpec({self.type.__name__}, {self._context}, [{parts}])"


PyTreeSpec = TreeSpec


class LeafSpec(TreeSpec):
    """The structure of a leaf."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None, None, ())


def treespec_leaf() -> LeafSpec:
    """The structure of a leaf."""
    return LeafSpec()


def treespec_tuple(iterable: Iterable[TreeSpec] = (), /) -> TreeSpec:
    """The structure of a tuple of trees with these structures."""
    children = list(iterable)
    if not all(isinstance(child, TreeSpec) for child in children):
        raise ValueRangeError(f"Expected a tuple of TreeSpec values, got: {children!r}.")
    return TreeSpec(tuple, None, children)


def treespec_dict(
    mapping: Mapping[Hashable, TreeSpec] | Iterable[tuple[Hashable, TreeSpec]] = (), /, **kwargs: TreeSpec
) -> TreeSpec:
    """The structure of a dict of trees with these structures."""
    children = dict(mapping, **kwargs)
    if not all(isinstance(child, TreeSpec) for child in children.values()):
        raise ValueRangeError(f"Expected a dictionary of TreeSpec values, got: {children!r}.")
    return TreeSpec(dict, list(children), children.values())


class _Star:
    def __repr__(self) -> str:
        return "*"


def treespec_pprint(treespec: TreeSpec) -> str:
    """The structure as text, with `*` for each leaf."""
    return repr(treespec.unflatten([_Star()] * treespec.num_leaves))


def tree_unflatten(leaves: Iterable[PyTree], treespec: TreeSpec) -> PyTree:
    """The tree with these leaves and this structure; the arguments may be exchanged."""
    if not isinstance(treespec, TreeSpec):
        if not isinstance(leaves, TreeSpec):
            raise ArgumentError(
                f"Expected `treespec` to be an instance of PyTreeSpec but got item of type {type(treespec)}."
            )
        leaves, treespec = treespec, leaves
    return treespec.unflatten(leaves)
