"""The table of primitives that the interpreter knows: from a name to what binds an equation's parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weft._lazy.precision import is_half

Array = np.ndarray
Params = Mapping[str, Any]
Function = Callable[..., Any]
"""Arrays -> an array, or for primitives with several results a sequence of arrays."""
Unary = Callable[[Array], Any]
Binary = Callable[[Array, Array], Any]


class Type(NamedTuple):
    """Shape and element type of an array. Random keys are numbers of 64 bits here."""

    shape: tuple[int, ...]
    dtype: np.dtype


Types = Sequence[Type]
Bind = Callable[[Params, Types, Types], Function]
"""(parameters, types of the inputs, types of the results) -> the function that computes the equation."""


class Primitive(NamedTuple):
    """An entry of the table.

    bind       makes a function of an equation; raises `MissingPrimitive` where it cannot
    view       whether results may share memory with inputs; all others are new arrays
    broadcasts whether inputs may have any shapes that NumPy broadcasts to that of the result
    """

    bind: Bind
    view: bool
    broadcasts: bool


class MissingPrimitive(Exception):
    """Primitives that the interpreter lacks, by name; or, in brackets, that it lacks with such parameters."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self.names = set(names)


PRIMITIVES: dict[str, Primitive] = {}


def primitive(*names: str, view: bool = False, broadcasts: bool = False) -> Callable[[Bind], Bind]:
    """Enter a function that binds equations under these names."""

    def enter(bind: Bind) -> Bind:
        for name in names:
            assert name not in PRIMITIVES, f"{name} is there already"
            PRIMITIVES[name] = Primitive(bind, view, broadcasts)
        return bind

    return enter


def is_float(dtype: np.dtype) -> bool:
    """Whether numbers of this type are real floats."""
    return dtype.kind == "f" or is_half(dtype)


def is_key(dtype: Any) -> bool:
    """Whether a type of jax is that of random keys."""
    return jnp.issubdtype(dtype, jax.dtypes.prng_key)


def is_integer(dtype: np.dtype) -> bool:
    """Whether numbers of this type are integers; bools are none."""
    return dtype.kind in "iu"


def computed_in(dtype: np.dtype) -> np.dtype:
    """The type that numbers of this type are computed in."""
    return np.dtype(np.float32) if is_half(dtype) else dtype


def widened(function: Function, ins: Types, outs: Types) -> Function:
    """The function for inputs of these types: 16-bit floats are computed in float32, and the result rounded once."""
    if not any(is_half(t.dtype) for t in (*ins, *outs)):
        return function
    target = outs[0].dtype
    if not is_half(target):
        return lambda *xs: function(*map(wide, xs))
    if len(ins) > 1:
        return lambda *xs: function(*map(wide, xs)).astype(target)
    unary: Unary = lambda x: function(wide(x)).astype(target)  # noqa: E731
    return unary


def wide(array: Array) -> Array:
    """The array in the type that it is computed in."""
    return array.astype(np.float32) if is_half(array.dtype) else array


def read_only(array: Array) -> Array:
    """A view of an array that nobody writes through."""
    view = array.view()
    view.flags.writeable = False
    return view


@lru_cache
def library(name: str) -> Any:
    """A module that is only loaded when something needs it: SciPy's take a while."""
    return import_module(name)
