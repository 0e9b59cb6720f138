"""Compiled modules, under PyTorch's import path."""

from __future__ import annotations

from weft._tensor.compile import Compiled
from weft.nn._module import Module


class _OfModules(type):
    """The type of `OptimizedModule`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Compiled) and isinstance(instance._orig_mod, Module)


class OptimizedModule(metaclass=_OfModules):
    """What `weft.compile(module)` is an instance of; `_orig_mod` is the module."""


def is_dynamo_supported() -> bool:
    """True: functions can be compiled everywhere."""
    return True
