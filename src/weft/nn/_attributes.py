"""Attributes of modules: which table they are registered in, and how they are found there."""

from __future__ import annotations

from weft._base.types import AnyCallable, Arg
from weft._lazy.native import native
from weft.nn._hooks import GLOBAL_HOOKS
from weft.nn._lookup import Lookup
from weft.nn._parameter import Parameter


def table_of(value: object) -> str:
    """The table in which a value is registered when it is assigned to an attribute, or ""."""
    return "_parameters" if isinstance(value, Parameter) else "_modules" if isinstance(value, Lookup) else ""


def find_in_tables(cls: Arg, getattr: AnyCallable) -> None:
    """Let the extension find attributes of a class's instances, if the class finds them by `getattr`, as `Module`."""
    if native is not None and cls.__getattr__ is getattr and cls.__getattribute__ is object.__getattribute__:
        native.look_up(cls)


def bind_base(module: Arg) -> None:
    """Tell the extension of the class `Module`."""
    if native is not None:
        native.bind(module_attribute=module.__getattr__, module_hooks=GLOBAL_HOOKS)
    find_in_tables(module, module.__getattr__)
