"""Tensors in nested containers."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

from weft._base.device import DeviceLike
from weft._base.guards import is_dict, is_list_or_tuple
from weft._base.types import Kwargs, PyTree
from weft._tensor.tensor import Tensor
from weft.errors import PreconditionError


def moved(structure: PyTree, device: DeviceLike) -> PyTree:
    """An object with its tensors moved to a device, also within dicts, lists and (named) tuples."""
    return _apply_to_tensors(lambda tensor: tensor.to(device), structure)


def _apply_to_tensors(fn: Callable[[Tensor], object], container: PyTree) -> PyTree:
    """An object with what a function gives of each of its tensors, also within dicts, lists and (named) tuples."""
    if isinstance(container, Tensor):
        return fn(container)
    if is_dict(container):
        return {key: _apply_to_tensors(fn, value) for key, value in container.items()}
    if is_list_or_tuple(container):
        items = [_apply_to_tensors(fn, item) for item in container]
        return type(container)(*items) if hasattr(container, "_fields") else type(container)(items)
    return container


def _to_kwargs(
    inputs: PyTree, kwargs: Kwargs | None, target_device: DeviceLike, use_side_stream_for_tensor_copies: bool = False
) -> tuple[tuple[PyTree, ...], tuple[Kwargs, ...]]:
    """Arguments with their tensors on a device, each in a tuple of one: for the one replica of a process."""
    del use_side_stream_for_tensor_copies
    return (moved(inputs, target_device),), (moved(kwargs or {}, target_device),)


def _p_assert(cond: object, s: str, raise_assertion_error: bool = True) -> None:
    """`AssertionError` with a text, which is printed as well, unless a condition holds."""
    if not cond:
        sys.stderr.write(s + "\n")
        traceback.print_stack()
        if raise_assertion_error:
            raise PreconditionError(s)
