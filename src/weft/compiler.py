"""PyTorch's compiler interface: whether a function is being recorded, what is excluded from that, and resets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from weft._base.state import ambient
from weft._base.types import AnyCallable, Arg, PyTree, Result
from weft._tensor.compile import compile as compile
from weft._tensor.compile import functions
from weft._tensor.compile import set_stance as set_stance
from weft._tensor.compile.compiled import DEFAULT_BACKEND
from weft._tensor.convert import tensor
from weft._tensor.tensor import Tensor
from weft.errors import UnsupportedCallError
from weft.utils._pytree import tree_map

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


def disable(fn: AnyCallable | None = None, recursive: bool = True, *, reason: str | None = None) -> AnyCallable:
    """A function that is never captured, or a decorator; a function of `weft.compile` that calls it runs uncaptured.

    Functions of `weft.compile` that it calls are not captured either, unless `recursive` is False.
    """
    if fn is None:
        return lambda function: disable(function, recursive, reason=reason)
    function = getattr(fn, "_orig_mod", fn)
    name = getattr(function, "__name__", type(function).__name__)

    @wraps(function)
    def disabled(*args: Arg, **kwargs: Arg) -> Result:
        capture = ambient().capture
        why = f"calls {name}, which is excluded from that" + (f" ({reason})" if reason else "")
        if capture is not None and capture.takes_calls:
            return capture.call_apart(disabled, args, kwargs, why)
        if capture is not None and not capture.exports:
            capture.prevent(why)
        if capture is not None or not recursive:
            return function(*args, **kwargs)
        with set_stance("force_eager"):
            return function(*args, **kwargs)

    return disabled


def _disable_dynamo(fn: AnyCallable | None = None, recursive: bool = True) -> AnyCallable:
    """`disable`, as libraries call it in `torch`."""
    return disable(fn, recursive)


def allow_in_graph(fn: AnyCallable) -> AnyCallable:
    """The function or functions themselves: whatever they compute is captured in any case."""
    return fn


def assume_constant_result(fn: Function) -> Function:
    """The function itself: it is called when its caller is captured, and again when what it can reach has changed."""
    return fn


def reset() -> None:
    """Forget what all functions of `weft.compile` have captured. The compiled programs are kept."""
    for function in list(functions):
        function.reset()


# --- how it is compiled -----------------------------------------------------------------------------------------


def list_backends(exclude_tags: Sequence[str] | None = ("debug", "experimental")) -> list[str]:
    """The names of compilers: XLA alone. `compile` accepts PyTorch's names, too, and takes XLA."""
    return ["xla"]


def cudagraph_mark_step_begin() -> None:
    """Does nothing: XLA's programs own their results."""


def save_cache_artifacts() -> None:
    """None, as in PyTorch where there is nothing to save: compiled programs are in the folder `WEFT_COMPILE_CACHE`."""


def load_compiled_function(file: object, **options: object) -> AnyCallable:
    """Raises `NotImplementedError`: compiled functions are not stored; `weft.export.save` stores programs."""
    del file, options
    raise UnsupportedCallError(
        "load_compiled_function: PyTorch's files of compiled functions hold code for its own compiler; store a program "
        "by weft.export.save(weft.export.export(function, args), file), and read it by weft.export.load(file)"
    )


def load_cache_artifacts(serialized_artifacts: bytes) -> None:
    """None, as in PyTorch where nothing could be loaded."""


def nested_compile_region(fn: AnyCallable | None = None, **options: Arg) -> AnyCallable:
    """The function itself, or a decorator: repeated regions of a recorded graph share one program in any case."""
    del options
    return (lambda function: function) if fn is None else fn


def substitute_in_graph(original_fn: AnyCallable, **options: Arg) -> Callable[[Function], Function]:
    """A decorator that changes nothing: a capture runs the original function."""
    del original_fn, options
    return lambda function: function


def wrap_numpy(fn: AnyCallable) -> AnyCallable:
    """A function of NumPy arrays as one of tensors, which reads its arguments; without gradients."""

    @wraps(fn)
    def of_tensors(*args: Arg, **kwargs: Arg) -> Result:
        inner = tree_map(_to_array, (args, kwargs))
        return tree_map(_to_tensor, fn(*inner[0], **inner[1]))

    return of_tensors


def _to_array(x: PyTree) -> PyTree:
    return x.detach().cpu().numpy() if isinstance(x, Tensor) else x


def _to_tensor(x: PyTree) -> PyTree:
    return tensor(x) if isinstance(x, np.ndarray | np.generic) else x


# --- the default compiler ---------------------------------------------------------------------------------------


def get_default_backend() -> Any:
    """What `compile` takes where it is given no backend: "xla" at first."""
    return DEFAULT_BACKEND.get()


def set_default_backend(backend: object) -> None:
    """Set what `compile` takes where it is given no backend: a name, a function, or None for "xla"."""
    DEFAULT_BACKEND.set("xla" if backend is None else backend)


def set_enable_guard_collectives(enabled: bool) -> bool:
    """False, and no effect: ranks do not agree on captures."""
    del enabled
    return False


# --- guards, of which there are none: a replay is valid while what the function can reach is unchanged ------------


def _guards(name: str) -> Callable[..., list[bool]]:
    def keep(guard_entries: Sequence[object], *args: Arg, **kwargs: Arg) -> list[bool]:
        return [True for _ in guard_entries]

    keep.__name__ = keep.__qualname__ = name
    keep.__doc__ = "True for each guard: `compile` has none that could be left out."
    return keep


skip_guard_on_inbuilt_nn_modules_unsafe = _guards("skip_guard_on_inbuilt_nn_modules_unsafe")
skip_guard_on_all_nn_modules_unsafe = _guards("skip_guard_on_all_nn_modules_unsafe")
skip_guard_on_globals_unsafe = _guards("skip_guard_on_globals_unsafe")
skip_all_guards_unsafe = _guards("skip_all_guards_unsafe")
keep_tensor_guards_unsafe = _guards("keep_tensor_guards_unsafe")
keep_portable_guards_unsafe = _guards("keep_portable_guards_unsafe")
