"""cuDNN. XLA chooses its algorithms when it compiles a program, so the flags are stored but have no effect."""

from __future__ import annotations

from contextlib import AbstractContextManager

from weft import cuda
from weft.backends._flags import set_within

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


def flags(**settings: object) -> AbstractContextManager[None]:
    """A block in which flags, such as `benchmark`, have other values; those that are not given keep theirs."""
    return set_within(globals(), settings)
