"""Arguments of calls as the signatures of functions and modules order them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class ArgsKwargsPair(NamedTuple):
    """Arguments of a call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def get_signature_for_torch_op(op: Callable[..., Any], return_schemas: bool = False) -> list[inspect.Signature] | None:
    """The signature of a function, in a list; None if it has none, as some builtins."""
    del return_schemas
    try:
        return [inspect.signature(op)]
    except (TypeError, ValueError):
        return None


def normalize_function(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    arg_types: Any = None,
    kwarg_types: Any = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The arguments of `target(*args, **kwargs)` with all defaults, positional ones first, or all by keyword.

    None if the function has no signature, or takes no such arguments.
    """
    del arg_types, kwarg_types
    signatures = get_signature_for_torch_op(target)
    return None if signatures is None else _normalized(signatures[0], args, kwargs, normalize_to_only_use_kwargs)


def normalize_module(
    root: Any,
    target: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The same for a call of the module at the path `target` of `root`."""
    signature = inspect.signature(root.get_submodule(target).forward)
    return _normalized(signature, args, kwargs, normalize_to_only_use_kwargs)


def _normalized(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, only_kwargs: bool
) -> ArgsKwargsPair | None:
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    if kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
        return None
    try:
        bound = signature.bind(*args, **(kwargs or {}))
    except TypeError:
        return None
    bound.apply_defaults()
    positional = 0 if only_kwargs else len(args)
    names = list(bound.arguments)
    values = tuple([bound.arguments[name] for name in names[:positional]])
    return ArgsKwargsPair(values, {name: bound.arguments[name] for name in names[positional:]})
