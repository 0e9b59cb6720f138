"""The table of the primitives that the interpreter knows, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weft._base.types import AnyCallable, Arg
from weft._lazy.precision import is_half

Array = np.ndarray
Params = Mapping[str, Any]
Function = AnyCallable
"""Arrays -> an array, or for primitives with several results a sequence of arrays."""
Unary = Callable[[Array], Any]
Binary = Callable[[Array, Array], Any]


class Type(NamedTuple):
    """Shape and element type of an array; for random keys, of the numbers that represent them."""

    shape: tuple[int, ...]
    dtype: np.dtype


Types = Sequence[Type]
Bind = Callable[[Params, Types, Types], Function]
"""(parameters, types of the inputs, types of the results) -> the function that computes the equation."""


class Primitive(NamedTuple):
    """An entry of the table.

    bind        makes the function that computes an equation; raises `MissingPrimitive` if it cannot
    view        whether results may share memory with inputs
    broadcasts  whether the function also takes inputs of other shapes that NumPy broadcasts to the result's
    dynamic     whether the elements of inputs say where those of the results are
    """

    bind: Bind
    view: bool
    broadcasts: bool
    dynamic: bool


class MissingPrimitive(Exception):
    """Primitives that the interpreter lacks.

    `names` holds their names; a name with brackets is that of a primitive which only lacks the parameters in them.
    """

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self.names = set(names)


# no cell: filled when the library is imported
PRIMITIVES: dict[str, Primitive] = {}


def primitive(
    *names: str, view: bool = False, broadcasts: bool = False, dynamic: bool = False
) -> Callable[[Bind], Bind]:
    """Register the decorated function as the `bind` of the primitives with these names."""

    def enter(bind: Bind) -> Bind:
        for name in names:
            assert name not in PRIMITIVES, f"{name} is there already"
            PRIMITIVES[name] = Primitive(bind, view, broadcasts, dynamic)
        return bind

    return enter


def is_float(dtype: np.dtype) -> bool:
    """Whether numbers of this type are real floats."""
    return dtype.kind == "f" or is_half(dtype)


def is_key(dtype: Arg) -> bool:
    """Whether a type of jax is that of random keys."""
    return not isinstance(dtype, np.dtype) and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def stored_as(dtype: Arg) -> np.dtype:
    """The type of the numbers that represent those of a type of jax: for random keys, as many bytes as they have."""
    if not is_key(dtype):
        return np.dtype(dtype)
    return np.dtype(np.uint64 if dtype.itemsize == 8 else (np.void, dtype.itemsize))


def is_integer(dtype: np.dtype) -> bool:
    """Whether numbers of this type are integers; bools are not."""
    return dtype.kind in "iu"


def computed_in(dtype: np.dtype) -> np.dtype:
    """The type in which numbers of this type are computed: float32 for 16-bit floats, else the type itself."""
    return np.dtype(np.float32) if is_half(dtype) else dtype


def widened(function: Function, ins: Types, outs: Types) -> Function:
    """The function for inputs of these types; 16-bit floats are computed in float32, and the result is rounded once."""
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
    """The array; in float32 if it holds 16-bit floats."""
    return array.astype(np.float32) if is_half(array.dtype) else array


def dense(array: Array) -> Array:
    """The array; a copy if its elements do not follow each other."""
    return array if array.flags.c_contiguous else array.copy()


def read_only(array: Array) -> Array:
    """A view of an array that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


class Opaque(Exception):
    """A function asks for more of an array than its type, so it is called at every run."""


def require_arrays(*arrays: Arg) -> None:
    """Let a function see arrays alone, since what it does beside NumPy's functions would not be traced."""
    for array in arrays:
        if not isinstance(array, np.ndarray):
            raise Opaque(type(array).__name__)


@lru_cache
def library(name: str) -> Arg:
    """A module, imported at the first call, since the import of SciPy's modules takes long."""
    return import_module(name)
