"""What of PyTorch's compiler interface has a meaning here: whether a function is being recorded, and by what."""

from __future__ import annotations

from weft._base.state import ambient
from weft._tensor.compile import compile as compile


def is_compiling() -> bool:
    """Whether the function that calls this is being captured by `weft.compile`, traced or exported."""
    return ambient().capture is not None


def is_dynamo_compiling() -> bool:
    """The same as `is_compiling`."""
    return is_compiling()


def is_exporting() -> bool:
    """Whether the function that calls this is being exported or traced by `weft.jit.trace`."""
    capture = ambient().capture
    return capture is not None and capture.exports


is_tracing = is_exporting
"""`weft.jit` has this name for it."""
