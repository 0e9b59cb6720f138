"""The weights of nodes of float, prepared and quantized models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft._base.types import AttributeValue
from weft._tensor.tensor import Tensor
from weft.ao.nn.intrinsic.modules.fused import FusedModule
from weft.ao.ns.fx.graph_matcher import Subgraph
from weft.ao.ns.fx.graph_passes import behind_observer
from weft.fx._paths import attribute_at
from weft.fx.graph_module import GraphModule
from weft.fx.node import Node

if TYPE_CHECKING:
    from weft.nn._module import Module

_WEIGHTED = {*(f"{kind}{n}d" for kind in ("Conv", "conv") for n in (1, 2, 3)), "Linear", "linear", "LSTM"}


def weights_of(part: Subgraph, model: GraphModule) -> list[Tensor]:
    """The weights of a convolution or an affine layer, or all of an LSTM's; none of other operations."""
    if part.base not in _WEIGHTED:
        return []
    node = part.start
    if node.op == "call_module":
        module = model.get_submodule(str(node.target))
        if part.base == "LSTM":
            return _of_lstm(module)
        weight: AttributeValue = (module[0] if isinstance(module, FusedModule) else module).weight
        return [weight.detach() if isinstance(weight, Tensor) else weight()]
    weight = node.args[1] if len(node.args) > 1 else node.kwargs["weight"]
    source = behind_observer(weight) if isinstance(weight, Node) else None
    if source is None or source.op != "get_attr":
        return []
    return [attribute_at(model, str(source.target)).detach()]


def _of_lstm(module: Module) -> list[Tensor]:
    """The weights of the input and of the state, layer by layer."""
    own: list[Tensor] = [x.detach() for name, x in module.named_parameters() if name.startswith("weight")]
    states = module.state_dict()
    entries: list[Tensor] = [x for key, entry in states.items() if key.endswith(".param") for x in entry[:2]]
    return own or entries
