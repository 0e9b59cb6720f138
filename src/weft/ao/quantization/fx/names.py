"""The names of the grids in the state dict of a converted model, which are PyTorch's."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from weft._base.dtype import qint8, quint8
from weft.ao.quantization.fx.operations import name_of
from weft.ao.quantization.fx.prepare import InsertionPlan, is_observer
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node
from weft.nn._tables import buffers_of, children_of, parameters_of

if TYPE_CHECKING:
    from weft.nn._module import Module


def is_static(observer: Module) -> bool:
    """Whether an observer chooses a grid for integers before the model runs."""
    return getattr(observer, "dtype", None) in (quint8, qint8) and not getattr(observer, "is_dynamic", False)


def numbered(prefix: str, others: Container[str]) -> str:
    """The prefix with the first number that makes it a name of its own."""
    number = 0
    while f"{prefix}_{number}" in others:
        number += 1
    return f"{prefix}_{number}"


def _prefix(observer: Node, plan: InsertionPlan) -> str:
    """The path of the module that computes what is observed.

    Where that has no `QConfig`, it is the path of the first layer that takes it, or of a `linear` if there is one.
    """
    value, users = observer.args[0], list(observer.users)
    if not isinstance(value, Node) or plan.qconfigs.get(value.name) is not None:
        return plan.scopes.get(getattr(value, "name", ""), "")
    linear = (node for node in users if name_of(node) == "torch.nn.functional.linear")
    user = next(linear, users[0] if users else observer)
    return f"{plan.scopes.get(user.name, '')}_input"


def grid_names(model: GraphModule, plan: InsertionPlan) -> dict[Node, tuple[str, str]]:
    """For each observer that has a grid, names for its scale and its zero point.

    All are numbered in the order of the graph, also those that the converted model does not read.
    """
    names: dict[Node, tuple[str, str]] = {}
    others = {*dir(model), *parameters_of(model), *buffers_of(model), *children_of(model)}
    for node in model.graph.nodes:
        if is_observer(node) and is_static(model.get_submodule(str(node.target))):
            prefix = _prefix(node, plan).replace(".", "_")
            names[node] = numbered(f"{prefix}_scale", others), numbered(f"{prefix}_zero_point", others)
            others.update(names[node])
    return names
