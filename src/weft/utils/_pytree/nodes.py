"""The types of containers that trees consist of, and the keys of what these contain."""

from __future__ import annotations

import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple, TypeAlias

from weft._base.cell import Registry
from weft._base.types import Arg
from weft._base.types import PyTree as PyTree
from weft.errors import ArgumentError, ValueRangeError

Context: TypeAlias = Any
Parts: TypeAlias = tuple[list[Any], Context]
FlattenFn: TypeAlias = Callable[[Any], Parts]
UnflattenFn: TypeAlias = Callable[[Iterable[Any], Context], Any]


# --- keys -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SequenceKey:
    """The position of a part of a sequence."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Sequence[PyTree]) -> PyTree:
        """The part of a sequence at this position."""
        return sequence[self.idx]


@dataclass(frozen=True, slots=True)
class MappingKey:
    """The key of a part of a mapping."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Mapping[Hashable, PyTree]) -> PyTree:
        """The part of a mapping with this key."""
        return mapping[self.key]


@dataclass(frozen=True, slots=True)
class GetAttrKey:
    """The name of the attribute that holds a part of an object."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: object) -> PyTree:
        """The attribute of an object with this name."""
        return getattr(obj, self.name)


KeyPath: TypeAlias = tuple[SequenceKey | MappingKey | GetAttrKey | Any, ...]


def keystr(kp: KeyPath) -> str:
    """A path of keys as Python writes it, such as `['layers'][0].weight`."""
    return "".join(map(str, kp))


def key_get(obj: PyTree, kp: KeyPath) -> PyTree:
    """The part of an object at a path of keys."""
    for key in kp:
        obj = key.get(obj)
    return obj


# --- the registry -----------------------------------------------------------------------------------------------


class NodeDef(NamedTuple):
    """How objects of a type are taken apart and built again.

    `flatten_fn(x)` gives the list of parts, and a context, all that is needed besides to build `x` again:
    `unflatten_fn(parts, context)`. `flatten_with_keys_fn(x)` gives each part as (key, part).
    """

    type: Any
    flatten_fn: FlattenFn
    unflatten_fn: UnflattenFn
    flatten_with_keys_fn: FlattenFn | None


SUPPORTED_NODES = Registry[Any, NodeDef]("the types of containers")
"""The registered types of containers; objects of all other types are leaves."""


def register_pytree_node(
    cls: type,
    flatten_fn: FlattenFn,
    unflatten_fn: UnflattenFn,
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Callable[[Context], object] | None = None,
    from_dumpable_context: Callable[[Any], Context] | None = None,
    flatten_with_keys_fn: FlattenFn | None = None,
) -> None:
    """Make a type a container: see `NodeDef`. Its subclasses remain leaves. `ValueError` if it is one already.

    The names and functions for writing structures as text are accepted, but structures are not written here.
    """
    del serialized_type_name, to_dumpable_context, from_dumpable_context
    if cls in SUPPORTED_NODES:
        raise ValueRangeError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)


def _register_pytree_node(cls: type, flatten_fn: FlattenFn, unflatten_fn: UnflattenFn, **options: Arg) -> None:
    """The older name of `register_pytree_node`."""
    warnings.warn(
        "`torch.utils._pytree._register_pytree_node` is deprecated. "
        "Please use `torch.utils._pytree.register_pytree_node` instead.",
        FutureWarning,
        stacklevel=2,
    )
    register_pytree_node(cls, flatten_fn, unflatten_fn, **options)


def register_dataclass(
    cls: type,
    *,
    field_names: Sequence[str] | None = None,
    drop_field_names: Sequence[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:
    """Make a dataclass a container of its fields, or any class one of the attributes `field_names`.

    Fields of `drop_field_names` are left out, and have their defaults in objects that are built again. What is None
    belongs to the structure, and is no leaf.
    """
    names = _fields(cls, field_names, set(drop_field_names or ()))

    def flatten(x: PyTree) -> Parts:
        values = {name: getattr(x, name) for name in names}
        present = [name for name in names if values[name] is not None]
        return [values[name] for name in present], [present, [name for name in names if values[name] is None]]

    def unflatten(parts: Iterable[PyTree], context: Context) -> PyTree:
        present, absent = context
        return cls(**dict(zip(present, parts, strict=True)), **dict.fromkeys(absent))

    def with_keys(x: PyTree) -> Parts:
        parts, context = flatten(x)
        return [(GetAttrKey(name), part) for name, part in zip(context[0], parts, strict=True)], context

    register_pytree_node(
        cls, flatten, unflatten, serialized_type_name=serialized_type_name, flatten_with_keys_fn=with_keys
    )


def _fields(cls: type, names: Sequence[str] | None, dropped: set[str]) -> list[str]:
    """The names of the fields that are parts; `ValueError` if some are missing or unknown."""
    if not is_dataclass(cls):
        if names is None:
            raise ValueRangeError(f"register_dataclass: {cls} is no dataclass, so give the names of its fields")
        return [name for name in names if name not in dropped]
    own = [field.name for field in fields(cls) if field.init and field.name not in dropped]
    if names is not None and set(names) != set(own):
        raise ValueRangeError(
            f"register_dataclass: field_names and drop_field_names must together name all fields of {cls.__name__} "
            f"that its constructor takes; without the dropped ones these are {own}, but got {list(names)}"
        )
    return own


@dataclass(frozen=True, slots=True)
class ConstantNode:
    """The context of an object of a type that `register_constant` knows: the object."""

    value: Any


def register_constant(cls: type) -> None:
    """Make objects of a type parts of the structure, without leaves; they are compared by `==`."""
    if cls.__eq__ is object.__eq__ or cls.__hash__ is None:
        kind = "__eq__" if cls.__eq__ is object.__eq__ else "__hash__"
        raise ArgumentError(f"register_constant(cls) expects `cls` to have a non-default `{kind}` implementation.")

    def flatten(x: PyTree) -> Parts:
        return [], ConstantNode(x)

    register_pytree_node(cls, flatten, lambda _, context: context.value, flatten_with_keys_fn=flatten)


# --- Python's containers ----------------------------------------------------------------------------------------


def is_namedtuple(obj: object) -> bool:
    """Whether an object is a named tuple, or a class of such."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_namedtuple_class(cls: type) -> bool:
    """Whether a class is one of named tuples."""
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields") and hasattr(cls, "_make")


def is_namedtuple_instance(obj: object) -> bool:
    """Whether an object is a named tuple."""
    return is_namedtuple_class(type(obj))


def node_type(tree: PyTree) -> Any:
    """The type under which an object is registered, if it is a container; `namedtuple` for all named tuples."""
    kind = type(tree)
    return namedtuple if is_namedtuple_class(kind) and kind not in SUPPORTED_NODES else kind


_get_node_type = node_type  # the name by which libraries call it


def _register(
    cls: Any, keys: Callable[[PyTree], Iterable[PyTree]], context: Callable[[PyTree], Context], build: UnflattenFn
) -> None:
    """Register a container of which iteration, or `values()`, gives the parts."""

    def flatten(x: PyTree) -> Parts:
        return list(x.values() if isinstance(x, dict) else x), context(x)

    def with_keys(x: PyTree) -> Parts:
        parts, rest = flatten(x)
        return list(zip(keys(x), parts, strict=True)), rest

    SUPPORTED_NODES[cls] = NodeDef(cls, flatten, build, with_keys)


def _positions(x: PyTree) -> list[SequenceKey]:
    return [SequenceKey(i) for i in range(len(x))]


def _keys(x: PyTree) -> list[MappingKey]:
    return [MappingKey(key) for key in x]


def _names(x: PyTree) -> list[GetAttrKey]:
    return [GetAttrKey(name) for name in x._fields]


def _mapping(keys: Iterable[Hashable], parts: Iterable[PyTree]) -> zip[tuple[Hashable, PyTree]]:
    return zip(keys, parts, strict=True)


_register(tuple, _positions, lambda x: None, lambda parts, _: tuple(parts))
_register(list, _positions, lambda x: None, lambda parts, _: list(parts))
_register(deque, _positions, lambda x: x.maxlen, lambda parts, maxlen: deque(parts, maxlen=maxlen))
_register(namedtuple, _names, type, lambda parts, kind: kind(*parts))
_register(dict, _keys, list, lambda parts, keys: dict(_mapping(keys, parts)))
_register(OrderedDict, _keys, list, lambda parts, keys: OrderedDict(_mapping(keys, parts)))
_register(
    defaultdict,
    _keys,
    lambda x: [x.default_factory, list(x)],
    lambda parts, context: defaultdict(context[0], _mapping(context[1], parts)),
)

SUPPORTED_NODES.settle()
BUILTIN_TYPES = frozenset(SUPPORTED_NODES)
STANDARD_DICT_TYPES = frozenset({dict, OrderedDict, defaultdict})

# For classes of libraries that derive from these, and flatten as they do.
_dict_flatten, _dict_unflatten = SUPPORTED_NODES[dict].flatten_fn, SUPPORTED_NODES[dict].unflatten_fn
_list_flatten, _list_unflatten = SUPPORTED_NODES[list].flatten_fn, SUPPORTED_NODES[list].unflatten_fn
_tuple_flatten, _tuple_unflatten = SUPPORTED_NODES[tuple].flatten_fn, SUPPORTED_NODES[tuple].unflatten_fn
_deque_flatten, _deque_unflatten = SUPPORTED_NODES[deque].flatten_fn, SUPPORTED_NODES[deque].unflatten_fn
_namedtuple_flatten = SUPPORTED_NODES[namedtuple].flatten_fn
_namedtuple_unflatten = SUPPORTED_NODES[namedtuple].unflatten_fn
_ordereddict_flatten = SUPPORTED_NODES[OrderedDict].flatten_fn
_ordereddict_unflatten = SUPPORTED_NODES[OrderedDict].unflatten_fn
_dict_flatten_with_keys = SUPPORTED_NODES[dict].flatten_with_keys_fn
_list_flatten_with_keys = SUPPORTED_NODES[list].flatten_with_keys_fn
_tuple_flatten_with_keys = SUPPORTED_NODES[tuple].flatten_with_keys_fn
