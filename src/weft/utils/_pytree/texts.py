"""The structures of trees as texts, in the format of PyTorch's files."""

from __future__ import annotations

import json
from collections import defaultdict, namedtuple
from importlib import import_module
from typing import Any

from weft.errors import ArgumentError, UnsupportedCallError, ValueRangeError
from weft.utils._pytree.nodes import SUPPORTED_NODES
from weft.utils._pytree.spec import LeafSpec, TreeSpec

_PROTOCOL = 1


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """A structure as JSON. Contexts must be JSON, too, and types of containers be found by their modules and names."""
    if not isinstance(treespec, TreeSpec):
        raise ArgumentError(
            f"treespec_dumps(treespec, protocol): Expected `treespec` to be instance of TreeSpec but got item of type "
            f"{type(treespec)}."
        )
    if protocol not in (None, _PROTOCOL):
        raise ValueRangeError(f"Unknown protocol {protocol}. Available protocols: [{_PROTOCOL}]")
    return json.dumps([_PROTOCOL, _described(treespec)])


def treespec_loads(serialized: str) -> TreeSpec:
    """The structure that a text of `treespec_dumps` describes."""
    protocol, description = json.loads(serialized)
    if protocol != _PROTOCOL:
        raise ValueRangeError(f"Unknown protocol {protocol}. Available protocols: [{_PROTOCOL}]")
    return _built(description)


def _described(spec: TreeSpec) -> dict[str, Any]:
    kind: Any = spec.type
    if kind is None:
        return {"type": None, "context": None, "children_spec": []}
    context: Any = spec.context
    if kind is defaultdict:
        factory, keys = context
        where = {"default_factory_module": factory.__module__, "default_factory_name": factory.__qualname__}
        text: Any = {**where, "dict_context": keys}
    else:
        try:
            text = json.dumps(_name_of(context) if kind is namedtuple else context)
        except TypeError as error:
            raise UnsupportedCallError(
                f"treespec_dumps: the context of {_name_of(kind)} is no JSON ({error}); pickle the structure instead"
            ) from error
    return {"type": _name_of(kind), "context": text, "children_spec": [_described(child) for child in spec.children()]}


def _name_of(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _built(description: dict[str, Any]) -> TreeSpec:
    name, text = description["type"], description["context"]
    if name is None:
        return LeafSpec()
    kind = _found(name)
    if kind not in SUPPORTED_NODES:
        raise ValueRangeError(f"treespec_loads: {name} is not registered; call register_pytree_node for it first")
    if kind is defaultdict:
        factory = _found(f"{text['default_factory_module']}.{text['default_factory_name']}")
        context: Any = [factory, text["dict_context"]]
    else:
        context = json.loads(text)
        context = _found(context) if kind is namedtuple else context
    return TreeSpec(kind, context, [_built(child) for child in description["children_spec"]])


def _found(name: str) -> Any:
    """The class at a dotted path."""
    parts = name.split(".")
    for count in range(len(parts) - 1, 0, -1):
        try:
            found: Any = import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise ValueRangeError(f"treespec_loads: there is no {name}")
