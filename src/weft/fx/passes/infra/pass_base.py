"""What a pass is, and what it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from weft.fx.graph_module import GraphModule
from weft.nn._module import Module


class PassResult(NamedTuple):
    """The module after a pass, and whether the pass has changed it."""

    graph_module: Module
    modified: bool


class PassBase(ABC):
    """A pass over graph modules: called with one, it checks what it needs, runs, and checks what it has made."""

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        """Run the pass between its two checks."""
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """What the pass does. Subclasses define it."""

    def requires(self, graph_module: GraphModule) -> None:  # noqa: B027  subclasses may override it
        """Raise if the pass cannot run. Does nothing by default."""

    def ensures(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Raise if the pass has not done what it should. Does nothing by default."""
