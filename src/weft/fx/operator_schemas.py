"""Arguments of calls as the signatures of functions and modules order them, and their types."""

from __future__ import annotations

import inspect
import numbers
import types
import typing
import warnings
from typing import Any, NamedTuple

from weft._base.dtype import DType
from weft._base.guards import is_list_or_tuple
from weft._base.types import Annotation, AnyCallable, Arg, Args, Kwargs, PyTree
from weft.errors import OutOfRangeError
from weft.overrides import resolve_name


class ArgsKwargsPair(NamedTuple):
    """Arguments of a call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


_OTHER_NAMES = ("axis", "keepdims", "out")
"""Parameters of this package's functions by which NumPy says the same as by others, and where a result is written."""


def get_signature_for_torch_op(op: Any, return_schemas: bool = False) -> list[inspect.Signature] | None:
    """The signatures of a function, in a list; None if it has none, as some builtins.

    For functions of this package, the first one is without `out` and without NumPy's names of parameters.
    """
    del return_schemas
    try:
        signature = inspect.signature(op)
    except (TypeError, ValueError):
        return None
    if resolve_name(op) is None:
        return [signature]
    variadic = inspect.Parameter.VAR_POSITIONAL
    whole = [x for x in signature.parameters.values() if not (x.kind is variadic and x.name == "_more")]
    usual = [x for x in whole if not (x.kind is inspect.Parameter.KEYWORD_ONLY and x.name in _OTHER_NAMES)]
    return [signature.replace(parameters=usual), signature.replace(parameters=whole)]


def normalize_function(
    target: AnyCallable | str,
    args: Args,
    kwargs: Kwargs | None = None,
    arg_types: object = None,
    kwarg_types: object = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The arguments of `target(*args, **kwargs)` with all defaults, positional ones first, or all by keyword.

    None if the function has no signature, or takes no such arguments.
    """
    del arg_types, kwarg_types
    for signature in get_signature_for_torch_op(target) or ():
        if (pair := _normalized(signature, args, kwargs, normalize_to_only_use_kwargs)) is not None:
            return pair
    return None


def normalize_module(
    root: Arg,
    target: str,
    args: Args,
    kwargs: Kwargs | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The same for a call of the module at the path `target` of `root`."""
    signature = inspect.signature(root.get_submodule(target).forward)
    return _normalized(signature, args, kwargs, normalize_to_only_use_kwargs)


def _normalized(
    signature: inspect.Signature, args: Args, kwargs: Kwargs | None, only_kwargs: bool
) -> ArgsKwargsPair | None:
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if any(parameter.kind not in named for parameter in signature.parameters.values()):
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


def is_write(target: AnyCallable | str, kwargs: Kwargs) -> bool:
    """Whether a call writes to an argument: the name of the function ends with `_`, or `out=` is given."""
    return is_in_place_name(getattr(target, "__name__", "")) or kwargs.get("out") is not None


def is_in_place_name(name: str) -> bool:
    """Whether a function or method of this name writes to an argument, as `add_` does."""
    return name.endswith("_") and not name.startswith("_") and not name.endswith("__")


def check_for_mutable_operation(target: AnyCallable | str, args: Args, kwargs: Kwargs) -> None:
    """Raise `RuntimeError` if a function of this package would write to an argument. Other functions are not judged."""
    del args
    if resolve_name(target) is not None and is_write(target, kwargs):
        raise OutOfRangeError(
            f"Tried to trace mutable operation {resolve_name(target)}, which writes to an argument; this tracer takes "
            "only functions that do not (check_mutable_operations). Use the form that returns a new tensor"
        )


def create_type_hint(x: PyTree) -> Annotation:
    """`list[T]` or `tuple[T, ...]` for a list or tuple of types, where `T` is the one that all others derive from.

    It is `Any` if there is none. What is neither a list nor a tuple is returned as it is.
    """
    if not is_list_or_tuple(x):
        return x
    parts = x
    try:
        common = next((kind for kind in parts if all(issubclass(part, kind) for part in parts)), Any)
    except TypeError:  # some are no classes
        warnings.warn(f"We were not able to successfully create type hint from the type {x}", stacklevel=2)
        return x
    return list[common] if isinstance(x, list) else tuple[common, ...]


def type_matches(signature_type: Annotation, argument_type: Annotation) -> bool:
    """Whether a parameter of one type takes arguments of another.

    Unions take what a part of them takes. `list[T]` also takes tuples, and `list[int]` an `int`. A number takes `int`
    and `float`, and `int` takes dtypes.
    """
    if signature_type is argument_type:
        return True
    origin = typing.get_origin(signature_type)
    if origin in (typing.Union, types.UnionType):
        return any(type_matches(part, argument_type) for part in typing.get_args(signature_type))
    if origin is list:
        return _list_takes(typing.get_args(signature_type)[0], argument_type)
    # In PyTorch's schemas a dtype is an int.
    if signature_type is int and argument_type is DType:
        return True
    if signature_type is numbers.Number and argument_type in (int, float):
        return True
    return (
        inspect.isclass(signature_type) and inspect.isclass(argument_type) and issubclass(argument_type, signature_type)
    )


def _list_takes(element: Annotation, argument_type: Annotation) -> bool:
    """Whether a parameter of type `list[element]` takes arguments of a type."""
    if element is int and argument_type is int:
        return True
    if not inspect.isclass(element):
        warnings.warn(f"type_matches: list[{element}] is not supported, its elements must be of a class", stacklevel=3)
        return False
    if typing.get_origin(argument_type) not in (list, tuple):
        return False
    parts = [part for part in typing.get_args(argument_type) if part is not ...]
    return all(inspect.isclass(part) and issubclass(part, element) for part in parts)
