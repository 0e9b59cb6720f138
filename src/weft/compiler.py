"""PyTorch's compiler interface: whether a function is being recorded, what is excluded from that, and resets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

from weft._base.state import ambient
from weft._tensor.compile import Compiled, functions
from weft._tensor.compile import compile as compile
from weft._tensor.compile import set_stance as set_stance

Function = TypeVar("Function", bound=Callable[..., Any])


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


# --- what is captured -------------------------------------------------------------------------------------------


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """A function that is never captured, or a decorator; a function of `weft.compile` that calls it runs uncaptured.

    Functions of `weft.compile` that it calls are not captured either, unless `recursive` is False.
    """
    if fn is None:
        return lambda function: disable(function, recursive, reason=reason)
    function = fn._function if isinstance(fn, Compiled) else fn
    name = getattr(function, "__name__", type(function).__name__)

    @wraps(function)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        capture = ambient().capture
        if capture is not None and not capture.exports:
            capture.prevent(f"calls {name}, which is excluded from that" + (f" ({reason})" if reason else ""))
        if capture is not None or not recursive:
            return function(*args, **kwargs)
        with set_stance("force_eager"):
            return function(*args, **kwargs)

    return disabled


def allow_in_graph(fn: Any) -> Any:
    """The function or functions themselves: whatever they compute is captured in any case."""
    return fn


def assume_constant_result(fn: Function) -> Function:
    """The function itself: it is called when its caller is captured, and again when what it can reach has changed."""
    return fn


def reset() -> None:
    """Forget what all functions of `weft.compile` have captured. The compiled programs are kept."""
    for function in list(functions):
        function._entries.clear()


# --- how it is compiled -----------------------------------------------------------------------------------------


def list_backends(exclude_tags: Sequence[str] | None = ("debug", "experimental")) -> list[str]:
    """The names of compilers: XLA alone. `compile` accepts all names, and takes XLA."""
    return ["xla"]


def cudagraph_mark_step_begin() -> None:
    """Does nothing: XLA's programs own their results."""


def save_cache_artifacts() -> None:
    """None, as in PyTorch where there is nothing to save: compiled programs are in the folder `WEFT_COMPILE_CACHE`."""


def load_cache_artifacts(serialized_artifacts: bytes) -> None:
    """None, as in PyTorch where nothing could be loaded."""
