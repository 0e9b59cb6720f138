"""What PyTorch's compiler has in its private modules: settings and marks without effect here, and answers."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

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


def mark_static_address(t: object, guard: bool = False) -> None:
    """Does nothing: a compiled function reads tensors from outside anew in every call."""


def is_dynamo_supported() -> bool:
    """True: functions can be compiled everywhere."""
    return True


def is_compile_supported(device_type: str) -> bool:
    """True: functions can be compiled for every device."""
    return True


class TransformGetItemToIndex(nullcontext[None]):
    """A block that changes nothing: `vmap` indexes by tensors without it."""
