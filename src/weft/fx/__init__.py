"""Programs as graphs to read and change: `symbolic_trace` makes a `Graph` of a module, `GraphModule` runs it."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.fx._symbolic_trace import PH as PH
from weft.fx._symbolic_trace import ProxyableClassMeta as ProxyableClassMeta
from weft.fx._symbolic_trace import Tracer as Tracer
from weft.fx._symbolic_trace import symbolic_trace as symbolic_trace
from weft.fx._symbolic_trace import wrap as wrap
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

_serve_below(__name__)
