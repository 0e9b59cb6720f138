"""The backends that functions can be compiled by, under their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft._base.types import AnyCallable, Arg
from weft._dynamo.exc import InvalidBackend
from weft._tensor.compile.compiled import XLA_NAMES, Compiled
from weft.errors import PreconditionError

Backend = Callable[..., AnyCallable]

# no cell: it is asked when a function is compiled
_registered: dict[str, tuple[Backend, tuple[str, ...]]] = {}


def register_backend(compiler_fn: Backend | None = None, name: str | None = None, tags: Sequence[str] = ()) -> Any:
    """Let `weft.compile(backend=name)` take a function that gets a graph module and its inputs. Also a decorator.

    The name is that of the function if none is given. `AssertionError` if there is a backend of this name.
    """
    if compiler_fn is None:
        return lambda function: register_backend(function, name, tags)
    own = name or getattr(compiler_fn, "__name__", type(compiler_fn).__name__)
    if own in _registered:
        raise PreconditionError(f"duplicate name: {own}; there is a backend of this name already")
    _registered[own] = compiler_fn, tuple(tags)
    return compiler_fn


def list_backends(exclude_tags: Sequence[str] | None = ("debug", "experimental")) -> list[str]:
    """The names of the backends without such tags: "xla", and those that `register_backend` has added."""
    excluded = set(exclude_tags or ())
    return sorted(["xla", *[name for name, (_, tags) in _registered.items() if not excluded.intersection(tags)]])


def lookup_backend(compiler_fn: Any) -> Backend:
    """The backend of a name, or a function itself. `InvalidBackend` if there is none.

    For PyTorch's names it is a function that has XLA compile the graph.
    """
    if not isinstance(compiler_fn, str):
        return compiler_fn
    if compiler_fn in _registered:
        return _registered[compiler_fn][0]
    if compiler_fn in XLA_NAMES:
        return _eager if "eager" in compiler_fn else _by_xla
    names = ", ".join(list_backends(None))
    raise InvalidBackend(
        f"Invalid backend: {compiler_fn!r}, see `torch._dynamo.list_backends()` for available backends: there are "
        f"{names}, and PyTorch's names, such as inductor, for xla"
    )


def _eager(gm: Arg, example_inputs: object, **options: object) -> AnyCallable:
    """The graph as it is."""
    del example_inputs, options
    return gm.forward


def _by_xla(gm: Arg, example_inputs: object, **options: object) -> AnyCallable:
    """The graph, captured by `weft.compile`."""
    del example_inputs, options
    return Compiled(gm, False)
