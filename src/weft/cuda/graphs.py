"""CUDA graphs, which XLA makes by itself of the programs that it compiles; recording them by hand is refused."""

from __future__ import annotations

from typing import Any, NoReturn

from weft.cuda._devices import is_current_stream_capturing as is_current_stream_capturing
from weft.errors import UnsupportedCallError


def _refuse(name: str) -> NoReturn:
    raise UnsupportedCallError(
        f"{name}: XLA captures the programs that it compiles by itself, and they cannot be replayed into the same "
        "tensors; decorate the function with `weft.compile`, which repeats it as one program"
    )


class CUDAGraph:
    """Refused when it is made."""

    def __init__(self, keep_graph: bool = False) -> None:
        _refuse("CUDAGraph")


class graph:
    """Refused when it is made."""

    def __init__(self, cuda_graph: object, pool: object = None, stream: object = None, **options: object) -> None:
        _refuse("graph")


def graph_pool_handle() -> tuple[int, int]:
    """A name for a pool of memory, which nothing uses."""
    return 0, 0


def make_graphed_callables(callables: object, sample_args: object, *args: object, **kwargs: object) -> Any:
    """The callables themselves: what they record is compiled when it repeats."""
    del sample_args, args, kwargs
    return callables
