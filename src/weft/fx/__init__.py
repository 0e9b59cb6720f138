"""Names of PyTorch's `fx` for programs that import them. `wrap` works; nothing here traces or holds a program.

Graphs to look at come from `weft.export.export(...).graph`; intermediate results from `register_forward_hook`.
"""

from weft.fx.graph import CodeGen as CodeGen
from weft.fx.graph import Graph as Graph
from weft.fx.graph_module import GraphModule as GraphModule
from weft.fx.interpreter import Interpreter as Interpreter
from weft.fx.interpreter import Transformer as Transformer
from weft.fx.node import Node as Node
from weft.fx.node import has_side_effect as has_side_effect
from weft.fx.node import map_arg as map_arg
from weft.fx.proxy import Proxy as Proxy
from weft.fx.subgraph_rewriter import replace_pattern as replace_pattern
from weft.fx.tracer import Tracer as Tracer
from weft.fx.tracer import symbolic_trace as symbolic_trace
from weft.fx.tracer import wrap as wrap
