"""Data loading, checkpointing, event files, and other helpers."""

from weft._base.exports import on_first_use as _on_first_use
from weft._import_paths.finder import serve_below as _serve_below
from weft.utils import checkpoint as checkpoint
from weft.utils import data as data

__getattr__, __dir__ = _on_first_use(
    __name__,
    {"weft.utils._compare": ("compare",), "weft.utils._swap": ("swap_tensors",)},
    (
        "_pytree",
        "backcompat",
        "benchmark",
        "collect_env",
        "cpp_extension",
        "deterministic",
        "flop_counter",
        "hooks",
        "memory",
        "module_tracker",
        "weak",
    ),
)
_serve_below(__name__)
