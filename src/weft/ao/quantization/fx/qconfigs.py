"""Which `QConfig` each node of a graph has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from weft._base.guards import is_a
from weft._base.types import Arg
from weft.ao._observing.qconfig import QConfig, QConfigAny
from weft.ao.quantization.fx.operations import first_kind
from weft.ao.quantization.qconfig_mapping import QConfigMapping
from weft.errors import ArgumentError
from weft.fx.node import Node
from weft.nn import functional as F
from weft.nn._module import Module
from weft.nn.utils.parametrize import type_before_parametrizations

Scope = tuple[str, Any]
"""The path and the type of the module in whose `forward` a node was made."""


_AS_METHODS = {F.sigmoid: "sigmoid", F.tanh: "tanh"}
"""Functions that are looked up by the names of methods, as which they are traced in PyTorch."""


def _by_path(mapping: QConfigMapping, path: str, otherwise: QConfigAny) -> QConfigAny:
    while path:
        if path in mapping.module_name_qconfigs:
            return mapping.module_name_qconfigs[path]
        path = path.rpartition(".")[0]
    return mapping.module_name_qconfigs.get("", otherwise)


def _by_place(mapping: QConfigMapping, kind: Arg, path: str, otherwise: QConfigAny) -> QConfigAny:
    """By the type, the expression that matches the path, and the path or one above it; later ones take precedence."""
    result = mapping.object_type_qconfigs.get(kind, otherwise)
    for expression, qconfig in mapping.module_name_regex_qconfigs.items():
        if re.match(expression, path):
            result = qconfig
            break
    return _by_path(mapping, path, result)


def _type_of(module: Module, mapping: QConfigMapping) -> object:
    """The type by which a module is looked up: of a fused one its own, if the mapping has it, or of the first layer."""
    kind = type_before_parametrizations(module)
    return kind if kind in mapping.object_type_qconfigs else first_kind(kind)


def qconfigs_of(
    nodes: list[Node], root: Module, mapping: QConfigMapping, scopes: Mapping[str, Scope]
) -> dict[str, QConfigAny]:
    """The `QConfig` of each node that calls something, and of each use of an attribute, by its name.

    Functions and methods are looked up by what they call, and by the module in which they are; attributes by the
    module that has them.
    """
    qconfigs: dict[str, QConfigAny] = {}
    counts: Counter[tuple[str, object]] = Counter()
    for node in nodes:
        path, kind = scopes.get(node.name, ("", None))
        target: Arg = node.target
        if node.op == "call_module":
            path, target = str(target), _type_of(root.get_submodule(str(target)), mapping)
            qconfig = _by_place(mapping, target, path, mapping.global_qconfig)
            path = path.rpartition(".")[0]
        elif node.op in ("call_function", "call_method"):
            target = _AS_METHODS.get(target, target)
            own = mapping.object_type_qconfigs.get(target, mapping.global_qconfig)
            qconfig = _by_place(mapping, kind, path, own)
        elif node.op == "get_attr":
            path = str(target).rpartition(".")[0]
            qconfig = _by_place(mapping, _type_of(root.get_submodule(path), mapping), path, mapping.global_qconfig)
        else:
            continue
        # The n-th call of a function within a module, by which mappings name single calls.
        at = (path, target, counts[path, target])
        counts[path, target] += 1
        qconfig = mapping.module_name_object_type_order_qconfigs.get(at, qconfig)
        if qconfig is not None and not is_a(qconfig, QConfig):
            raise ArgumentError(
                f"a QConfigMapping has QConfigs or None, but {node.name} got a {type(qconfig).__name__}"
            )
        qconfigs[node.name] = qconfig
    return qconfigs
