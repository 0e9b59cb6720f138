"""Names of a tensor's dims: what they may be, where a dim is that has one, and how they change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from weft._base.state import ambient, using
from weft._base.types import Arg
from weft._lazy.aval import named
from weft._lazy.call import ONE
from weft._lazy.infer import call_of
from weft._lazy.names import distinct
from weft._lazy.role import Interior
from weft._tensor.base import TensorBase, new_handle
from weft._tensor.sharing import rebind
from weft._tensor.view import make_view, own, renamed
from weft.errors import ArgumentError, DimNameError
from weft.ops._dims import Names
from weft.ops._table import TABLE

T = TypeVar("T", bound=TensorBase)


def names_of(tensor: TensorBase) -> Names:
    """The name of each dim, or None."""
    aval = tensor._read().aval
    return (None,) * len(aval.shape) if aval.names is None else aval.names


def label_of(tensor: TensorBase) -> str:
    """How errors call a tensor: by its names."""
    return f"Tensor{list(names_of(tensor))}"


def position(tensor: TensorBase, name: str | None) -> int:
    """The dim with this name; `RuntimeError` where there is none."""
    if name is None:
        raise DimNameError("Please look up dimensions by name, got: name = None.")
    names = names_of(tensor)
    if name not in names:
        raise DimNameError(f"Name {name!r} not found in {label_of(tensor)}.")
    return names.index(name)


def checked_names(names: Sequence[Arg], ndim: int | None = None) -> Names:
    """Names for the dims of a tensor; `RuntimeError` for some that are no names or come twice.

    With `ndim`, also for too few or too many.
    """
    if isinstance(names, str):
        raise ArgumentError(f"names must be a tuple or a list of names, such as ({names!r},), not the str {names!r}")
    for name in names:
        if name is not None and not isinstance(name, str):
            raise ArgumentError(f"names must be str or None, not {type(name).__name__}: {list(names)}")
        if name is not None and not (name.isidentifier() and name.isascii()):
            raise DimNameError(
                "Invalid name: a valid identifier contains only digits, alphabetical characters, and/or underscore and "
                f"starts with a non-digit. got: '{name}'."
            )
    if ndim is not None and len(names) != ndim:
        raise DimNameError(
            f"Number of names ({len(names)}) and number of dimensions in tensor ({ndim}) do not match. Attempted to "
            f"create a tensor with names {list(names)}"
        )
    present = [name for name in names if name is not None]
    if len(set(present)) != len(present):
        raise DimNameError(f"Cannot construct a tensor with duplicate names. Got names: {list(names)}.")
    return tuple(names)


def renamed_view(result: T, tensor: TensorBase, names: Names) -> T:
    """Make `result`, a new tensor, a view of all of `tensor` whose dims have these names."""
    result._value = renamed(tensor._read(), names)
    return make_view(result, tensor, call_of(TABLE["renamed"], (ONE, names)), ())


def set_names(tensor: T, names: Names) -> T:
    """Give the dims of a tensor, and of its gradient, other names. Its elements and its views stay."""
    role = tensor._role
    if role is not None and role.grad is not None and role.grad._read().aval.names is not None:
        role.grad = with_names(role.grad, names)
    value = tensor._read()
    aval = named(value.aval, names)
    if aval is value.aval:
        return tensor
    is_viewed = any(ref() is not None for ref in tensor._views or ())
    if tensor._alias is not None or is_viewed or ambient().capture is not None:
        with using(grad=isinstance(value.role, Interior)):  # a leaf stays one
            return rebind(tensor, renamed_view(new_handle(type(tensor)), tensor, names))
    if not isinstance(value.role, Interior):
        tensor._value = fresh = own(value)
        fresh.aval, fresh.role = aval, value.role
    else:
        with using(grad=True):
            tensor._value = renamed(value, names)
    return tensor


def with_names(tensor: T, names: Names) -> T:
    """A view whose dims have these names, each only where it comes first; the tensor itself if it has them."""
    new = distinct(names)
    return tensor if names_of(tensor) == new else renamed_view(new_handle(type(tensor)), tensor, new)


def unnamed(tensor: T) -> T:
    """A view whose dims have no names; the tensor itself if they have none."""
    return with_names(tensor, (None,) * len(tensor._read().aval.shape))


def take_names(tensor: T, names: Names | None) -> T:
    """Give a tensor without names those of the results that were written to it."""
    return tensor if names is None or tensor._read().aval.names is not None else set_names(tensor, names)
