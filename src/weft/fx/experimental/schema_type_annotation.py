"""Types of nodes, from the annotations of what they call."""

from __future__ import annotations

from weft import nn
from weft._base.types import Arg, Kwargs, Result
from weft._tensor.tensor import Tensor
from weft.fx._annotations import annotation_of
from weft.fx._names import public_name
from weft.fx.graph_module import GraphModule
from weft.fx.interpreter import Transformer
from weft.fx.node import Argument, Target
from weft.fx.proxy import Proxy


class AnnotateTypesWithSchema(Transformer):
    """Sets `node.type` where it is None: of functions of `nn.functional` and of layers of `nn` to the annotation of
    their result, and of attributes to their type. Each of the three can be turned off.
    """

    def __init__(
        self,
        module: GraphModule,
        annotate_functionals: bool = True,
        annotate_modules: bool = True,
        annotate_get_attrs: bool = True,
    ) -> None:
        super().__init__(module)
        self.annotate_functionals = annotate_functionals
        self.annotate_modules = annotate_modules
        self.annotate_get_attrs = annotate_get_attrs

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: Kwargs) -> Proxy:
        """A call of a function, with the type of its result."""
        result = super().call_function(target, args, kwargs)
        is_functional = (public_name(target) or "").startswith("torch.nn.functional.")
        return _typed(result, annotation_of(target, "return") if self.annotate_functionals and is_functional else None)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: Kwargs) -> Result:
        """A call of a module, with the type of its result."""
        result = super().call_module(target, args, kwargs)
        kind: Arg = self.fetch_attr(str(target)).__class__
        is_layer = getattr(nn, kind.__name__, None) is kind
        return _typed(result, annotation_of(kind.forward, "return") if self.annotate_modules and is_layer else None)

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: Kwargs) -> Proxy:
        """A use of an attribute, with its type."""
        result = super().get_attr(target, args, kwargs)
        value = self.fetch_attr(str(target))
        kind = next((kind for kind in (Tensor, bool, int, float, str) if isinstance(value, kind)), None)
        return _typed(result, kind if self.annotate_get_attrs else None)


def _typed(proxy: Proxy, kind: object) -> Proxy:
    proxy.node.type = proxy.node.type or kind
    return proxy
