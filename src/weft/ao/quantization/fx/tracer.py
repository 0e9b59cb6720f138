"""How graph mode traces models."""

from __future__ import annotations

from collections.abc import Collection

from weft.ao.nn.intrinsic.modules.fused import FusedModule
from weft.fx._tracer import Tracer
from weft.nn._module import Module


class QuantizationTracer(Tracer):
    """A tracer for which fused layers, and modules that are named or of given types, are single nodes."""

    def __init__(self, skipped_module_names: Collection[str], skipped_module_classes: Collection[type]) -> None:
        super().__init__()
        self.skipped_module_names = skipped_module_names
        self.skipped_module_classes = skipped_module_classes

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether calls of a module are single nodes."""
        return (
            isinstance(m, FusedModule)
            or module_qualified_name in self.skipped_module_names
            or type(m) in self.skipped_module_classes
            or super().is_leaf_module(m, module_qualified_name)
        )
