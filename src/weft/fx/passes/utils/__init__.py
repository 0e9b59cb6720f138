"""What passes use: finding forms in graphs, comparing graphs, and making modules of their parts."""

from weft.fx.passes.utils.common import HolderModule as HolderModule
from weft.fx.passes.utils.common import compare_graphs as compare_graphs
from weft.fx.passes.utils.common import lift_subgraph_as_module as lift_subgraph_as_module
