"""Passes over graphs: shapes of results, splitting into parts, drawings, and what runs passes in order."""

from weft._import_paths.finder import serve_below as _serve_below
from weft.fx.passes import graph_drawer as graph_drawer
from weft.fx.passes import graph_manipulation as graph_manipulation
from weft.fx.passes import operator_support as operator_support
from weft.fx.passes import param_fetch as param_fetch
from weft.fx.passes import shape_prop as shape_prop
from weft.fx.passes import split_module as split_module
from weft.fx.passes import split_utils as split_utils
from weft.fx.passes import tools_common as tools_common

_serve_below(__name__)
