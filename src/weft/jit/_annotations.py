"""Annotations of TorchScript. There is no script compiler: annotated functions and modules run as Python."""

from __future__ import annotations

import builtins
import types
import typing
from typing import Any, NamedTuple, TypeVar, cast

from weft._base.types import Annotation, AnyCallable, Arg, PyTree
from weft._base.usage import log_api_usage_once
from weft.errors import ArgumentError

T = TypeVar("T")


class Error(Exception):
    """What PyTorch raises where a script fails; here scripts run as Python, and raise their own errors."""


def script(
    obj: T,
    optimize: object = None,
    _frames_up: int = 0,
    _rcb: object = None,
    example_inputs: PyTree = None,
) -> T:
    """`obj` itself: a function, a module or a class, which runs as it is written.

    To get a program that runs without its Python code, use `weft.jit.trace` or `weft.export.export`.
    """
    log_api_usage_once("torch.script.compile")
    del optimize, _frames_up, _rcb, example_inputs
    if not callable(obj):
        raise ArgumentError(f"jit.script: expected a function, a module or a class, got {type(obj).__name__}")
    return obj


def script_method(fn: T) -> T:
    """The method itself."""
    return fn


def script_if_tracing(fn: T) -> T:
    """The function itself."""
    return fn


_script_if_tracing = script_if_tracing  # the name by which libraries call it


def _overload_method(func: T) -> T:
    """The method itself: its annotations are for TorchScript's compiler."""
    return func


_overload = _overload_method


def export(fn: T) -> T:
    """The method itself. In PyTorch, it would be compiled besides `forward`."""
    return fn


def interface(obj: T) -> T:
    """The class itself."""
    return obj


def unused(fn: T) -> T:
    """The function itself, which can be called here."""
    return fn


def ignore(drop: object = False, **kwargs: Arg) -> AnyCallable:
    """The decorated function itself; with or without arguments."""
    del kwargs
    if callable(drop):
        return drop
    if not builtins.isinstance(drop, bool):
        raise ArgumentError(f"Argument to @torch.jit.ignore must be a bool or a function but got {drop}")

    def same(fn: AnyCallable) -> AnyCallable:
        return fn

    return same


def is_scripting() -> bool:
    """False: nothing is compiled from its source."""
    return False


def annotate(the_type: Annotation, the_value: T) -> T:
    """The value. The type is for TorchScript's compiler."""
    del the_type
    return the_value


class Attribute(NamedTuple):
    """A value for an attribute of a module, with the type that TorchScript's compiler shall give it."""

    value: Any
    type: Any


def isinstance(obj: PyTree, target_type: Annotation) -> bool:
    """Whether an object has a type such as `List[int]`, `Optional[Tensor]` or a tuple of types; contents count.

    An empty container has any type of its kind.
    """
    if builtins.isinstance(target_type, tuple):
        return any(isinstance(obj, one) for one in cast("tuple[Any, ...]", target_type))
    if target_type is Any:
        return True
    if target_type is None:
        return obj is None
    if target_type in (list, dict, tuple, typing.List, typing.Dict, typing.Tuple):  # noqa: UP006
        raise ArgumentError(
            f"Attempted to use {target_type} without a contained type. Please add a contained type, e.g. List[int]"
        )
    origin, args = typing.get_origin(target_type), typing.get_args(target_type)
    if origin in (typing.Union, types.UnionType):
        return any(isinstance(obj, one) for one in args)
    if origin is None:
        return builtins.isinstance(obj, target_type)
    if not builtins.isinstance(obj, origin):
        return False
    if origin is dict:
        return all(isinstance(k, args[0]) and isinstance(v, args[1]) for k, v in obj.items())
    if origin is tuple and args[-1:] != (...,):
        return len(obj) == len(args) and all(map(isinstance, obj, args))
    return all(isinstance(item, args[0]) for item in obj)
