"""Programs as graphs for backends of the user's, under PyTorch's names.

`weft.compile(function, backend=...)` comes here.
"""

from weft._base.exports import on_first_use as _on_first_use
from weft._import_paths.finder import serve_below as _serve_below

_NAMES = {
    "weft._dynamo._backends": ["list_backends", "lookup_backend", "register_backend"],
    "weft._dynamo._explain": ["explain"],
    "weft._dynamo._marks": [
        "disallow_in_graph",
        "forbid_in_graph",
        "graph_break",
        "is_dynamo_supported",
        "mark_dynamic",
        "mark_static",
        "mark_static_address",
        "maybe_mark_dynamic",
        "optimize",
        "optimize_assert",
        "patch_dynamo_config",
        "reset_code_caches",
        "run",
    ],
    "weft.compiler": [
        "allow_in_graph",
        "assume_constant_result",
        "disable",
        "is_compiling",
        "reset",
        "set_stance",
        "substitute_in_graph",
    ],
    "weft.nn._optimized": ["OptimizedModule"],
}
_MODULES = ["config", "exc", "testing", "utils"]

__getattr__, __dir__ = _on_first_use(__name__, _NAMES, _MODULES)
_serve_below(__name__)
