"""What a backend needs of layers: their tensors and options, on the nodes that call them."""

from __future__ import annotations

from collections.abc import Callable

from weft._base.types import AttributeValue
from weft.errors import OutOfRangeError
from weft.fx._names import home_of
from weft.fx.graph_module import GraphModule
from weft.nn._activation import ReLU
from weft.nn._conv import Conv2d
from weft.nn._linear import Linear
from weft.nn._module import Module
from weft.nn._norm import BatchNorm2d
from weft.nn._pooling import AdaptiveAvgPool2d, MaxPool2d


def default_matching(name: str, target_version: int) -> str:
    """The name of an attribute in a version of a class: the same in all."""
    del target_version
    return name


_CONV = ["weight", "bias", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode"]
_POOL = ["kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"]

# no cell: only passes over traced programs read it
module_fetch_book: dict[type, tuple[int, list[str], Callable[[str, int], str]]] = {
    Linear: (1, ["weight", "bias"], default_matching),
    Conv2d: (1, _CONV, default_matching),
    BatchNorm2d: (2, ["weight", "bias", "running_mean", "running_var", "eps"], default_matching),
    AdaptiveAvgPool2d: (1, [], default_matching),
    MaxPool2d: (1, _POOL, default_matching),
    ReLU: (1, ["inplace"], default_matching),
}
"""By class: its latest version that the entry knows, the attributes to fetch, and their names in other versions."""


def extract_attrs_for_lowering(mod: Module) -> dict[str, AttributeValue]:
    """The attributes of a layer by name, and its class as "name".

    Raises `RuntimeError` if `module_fetch_book` does not have the class, or only older versions of it.
    """
    kind = type(mod)
    name = f"{home_of(kind)}.{kind.__qualname__}"
    if kind not in module_fetch_book:
        raise OutOfRangeError(f"{name} is not in the module_fetch_book: add an entry for this class")
    version, attributes, name_in = module_fetch_book[kind]
    own_version = mod._version  # pyright: ignore[reportPrivateUsage]  PyTorch's name
    if version < own_version:
        raise OutOfRangeError(
            f"{name} has version {own_version}, and module_fetch_book knows only {version}: change its entry"
        )
    return {"name": name, **{attribute: getattr(mod, name_in(attribute, own_version)) for attribute in attributes}}


def lift_lowering_attrs_to_nodes(fx_module: GraphModule) -> None:
    """Set `node.attrs_for_lowering` of all nodes that call a layer, also in graph modules within this one."""
    for node in fx_module.graph.find_nodes(op="call_module"):
        submodule = fx_module.get_submodule(node.target)
        if isinstance(submodule, GraphModule):
            lift_lowering_attrs_to_nodes(submodule)
        else:
            attributes = extract_attrs_for_lowering(submodule)
            setattr(node, "attrs_for_lowering", attributes)  # noqa: B010  no attribute of all nodes
