"""Names of PyTorch's compiler that programs import from its private module."""

from __future__ import annotations

from types import SimpleNamespace

from weft._dynamo import eval_frame as eval_frame
from weft._dynamo import utils as utils
from weft._dynamo.eval_frame import OptimizedModule as OptimizedModule
from weft.compiler import allow_in_graph as allow_in_graph
from weft.compiler import assume_constant_result as assume_constant_result
from weft.compiler import disable as disable
from weft.compiler import is_compiling as is_compiling
from weft.compiler import list_backends as list_backends
from weft.compiler import reset as reset

config = SimpleNamespace(
    suppress_errors=False,
    cache_size_limit=8,
    recompile_limit=8,
    optimize_ddp=True,
    dynamic_shapes=True,
    assume_static_by_default=True,
    automatic_dynamic_shapes=True,
    capture_scalar_outputs=False,
    capture_dynamic_output_shape_ops=False,
    skip_fwd_side_effects_in_bwd_under_checkpoint=False,
    verbose=False,
    log_level=None,
)
"""PyTorch's settings. They can be set, and have no effect: a function that cannot be captured runs as it is."""


def graph_break(msg: str = "") -> None:
    """Does nothing: a function is captured whole, or not at all."""


def mark_dynamic(t: object, index: object, **options: object) -> None:
    """Does nothing: sizes that change become symbols by themselves."""


maybe_mark_dynamic = mark_static = mark_dynamic


def mark_static_address(t: object, guard: bool = False) -> None:
    """Does nothing: a compiled function reads tensors from outside anew in every call."""
