"""cuDNN. XLA chooses its algorithms when it compiles a program, so the flags are stored but have no effect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft import cuda

enabled = True
benchmark = False
benchmark_limit = 10
deterministic = False
allow_tf32 = True


def is_available() -> bool:
    """Whether there is a CUDA device, whose programs use cuDNN."""
    return cuda.is_available()


def version() -> int | None:
    """None: jaxlib determines which cuDNN is used."""
    return None


@contextmanager
def flags(**settings: Any) -> Iterator[None]:
    """Set the flags within a block; see `torch.backends.cudnn` for their names."""
    scope = globals()
    before = {name: scope[name] for name in settings}
    scope.update(settings)
    try:
        yield
    finally:
        scope.update(before)
