"""What libraries call in the compiler of TorchScript, which there is none of: functions stay as they are."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import TypeVar

from weft._base.types import AnyCallable, Arg, Result

T = TypeVar("T")

concrete_type_store = SimpleNamespace(type_store={}, methods_compiled=set())
"""What has been compiled: nothing. Programs clear it."""


class FunctionModifiers:
    """What annotations of functions would tell the compiler."""

    UNUSED = "unused (ignored and replaced with raising of an exception)"
    IGNORE = "ignore (leave as a call to Python, cannot be torch.jit.save'd)"
    EXPORT = "export (compile this function even if nothing calls it)"
    DEFAULT = "default (compile if called from a exported function / forward)"
    COPY_TO_SCRIPT_WRAPPER = "if this method is not scripted, copy the python method onto the scripted model"


def get_torchscript_modifier(fn: object) -> str:
    """`FunctionModifiers.DEFAULT`: annotations are not kept."""
    del fn
    return FunctionModifiers.DEFAULT


def _copy_to_script_wrapper(fn: T) -> T:
    """The method itself."""
    return fn


def boolean_dispatch(
    arg_name: str,
    arg_index: int,
    default: bool,
    if_true: AnyCallable,
    if_false: AnyCallable,
    module_name: str | None,
    func_name: str | None,
) -> AnyCallable:
    """A function that calls one of two others, by the value of an argument."""
    del module_name

    @functools.wraps(if_true)
    def function(*args: Arg, **kwargs: Arg) -> Result:
        chosen = kwargs[arg_name] if arg_name in kwargs else args[arg_index] if arg_index < len(args) else default
        return (if_true if chosen else if_false)(*args, **kwargs)

    if func_name is not None:
        function.__name__ = func_name
    return function
