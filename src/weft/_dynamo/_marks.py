"""What programs tell PyTorch's compiler about functions and tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from weft._base.capture import active_capture
from weft._base.types import AnyCallable, Arg, Result
from weft._dynamo import config
from weft._dynamo._recorder import Recorder
from weft._tensor.compile import compile as compile_function
from weft.compiler import disable, set_stance


def optimize(backend: object = "inductor", *, nopython: bool = False, disable: bool = False, **options: Arg) -> Any:
    """A decorator that compiles functions by a backend, as `weft.compile(backend=...)` does."""
    dynamic = options.get("dynamic")
    return partial(compile_function, backend=backend, fullgraph=nopython, disable=disable, dynamic=dynamic)


def optimize_assert(backend: object, **options: Arg) -> Any:
    """`optimize` with `nopython`: a function that is no single graph raises `Unsupported`."""
    return optimize(backend, nopython=True, **options)


def graph_break(msg: str = "") -> None:
    """End the graph of the function that is being compiled by a backend here; a new one begins."""
    capture = active_capture()
    if isinstance(capture, Recorder):
        capture.break_graph(f"calls graph_break{f' ({msg})' if msg else ''}")


def disallow_in_graph(fn: AnyCallable) -> AnyCallable:
    """A function that is never part of a graph, while functions that it calls may be compiled."""
    return disable(fn, recursive=False)


forbid_in_graph = disallow_in_graph


def run(fn: AnyCallable | None = None) -> AnyCallable:
    """The function, in whose calls nothing is compiled anew; also a decorator."""
    if fn is None:
        return run

    def called(*args: Arg, **kwargs: Arg) -> Result:
        with set_stance("eager_on_recompile"):
            return fn(*args, **kwargs)

    return called


def patch_dynamo_config(*changes: Any, **settings: Any) -> Callable[[AnyCallable], AnyCallable]:
    """`config.patch`."""
    return config.patch(*changes, **settings)  # pyright: ignore[reportAttributeAccessIssue]


def mark_dynamic(t: object, index: object, **options: object) -> None:
    """Does nothing: sizes that change are found by themselves, and a backend gets a graph for each."""


maybe_mark_dynamic = mark_static = mark_dynamic


def mark_static_address(t: object, guard: bool = False) -> None:
    """Does nothing: a compiled function reads tensors from outside anew in every call."""


def reset_code_caches() -> None:
    """Does nothing: what has been compiled belongs to the function, and is valid for as long."""


def is_dynamo_supported() -> bool:
    """True: functions can be compiled everywhere."""
    return True


def is_compile_supported(device_type: str) -> bool:
    """True: functions can be compiled for every device."""
    return True
