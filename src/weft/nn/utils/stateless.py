"""Calls of modules with their parameters and buffers replaced by other tensors."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from weft._base.guards import is_tuple
from weft._base.types import Kwargs, PyTree, Result
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, LacksAttributeError, NameKeyError, StateDictError, ValueRangeError
from weft.nn._module import Module
from weft.nn._tables import buffers_of, name_of, parameters_of


def call_with(
    module: Module, tensors: dict[str, Tensor], args: PyTree, kwargs: Kwargs | None, tie_weights: bool, strict: bool
) -> Result:
    """Call a module with the tensors of the given names replaced, for this call only.

    With `tie_weights`, a replacement counts for all names of the same tensor. With `strict`, there must be one for
    every name, and none for others. If the call assigns a new tensor to one of the names, `tensors` is updated with it.
    """
    positional = args if is_tuple(args) else () if args is None else (args,)
    with _reparametrize_module(module, tensors, tie_weights, strict):
        return module(*positional, **(kwargs or {}))


@contextmanager
def _reparametrize_module(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    tie_weights: bool = False,
    strict: bool = False,
    stack_weights: bool = False,
) -> Generator[None]:
    """Replace tensors of a module by those of the given names within a block, as `call_with` does for one call."""
    del stack_weights  # what was replaced last is always put back first
    tensors = parameters_and_buffers
    replacements = _for_all_names(module, tensors) if tie_weights else dict(tensors)
    if strict:
        _require_names(module, replacements)
    try:
        with _in_place(module, replacements):
            yield
    finally:
        tensors.update({name: replacements[name] for name in tensors})


def swap_tensor(module: Module, name: str, tensor: Tensor | None, allow_missing: bool = False) -> Tensor | None:
    """Put a tensor in the place of a module's own; returns that one. `AttributeError` if there is none of this name."""
    if not isinstance(module, Module):
        raise ArgumentError(f"{module} is not an instance of torch.nn.Module")
    if tensor is not None and not isinstance(tensor, Tensor):
        raise ArgumentError(f"{tensor} is not an instance of torch.Tensor")
    if not name or "." in name:
        raise NameKeyError(f"{name!r} is not the name of a tensor, which has no dots; swap it in its own module")
    if not allow_missing and not hasattr(module, name):
        raise LacksAttributeError(f"{name_of(module)} has no attribute `{name}`")
    before = _swap(module, name, tensor)
    return None if before is _ABSENT else before


def set_tensor(module: Module, name: str, tensor: Tensor | None) -> None:
    """Put a tensor in the place of a module's own, or where there is none."""
    swap_tensor(module, name, tensor, allow_missing=True)


def _all_tensors(module: Module) -> dict[str, Tensor]:
    table: dict[str, Any] = dict(module.named_parameters(remove_duplicate=False))
    return table | dict(module.named_buffers(remove_duplicate=False))


def _for_all_names(module: Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The replacements, also under the other names of the tensors that they replace."""
    names: dict[Any, list[str]] = {}
    for name, tensor in _all_tensors(module).items():
        names.setdefault(tensor, []).append(name)
    table = dict(tensors)
    for tied in names.values():
        values = [tensors[name] for name in tied if name in tensors]
        if len(set(values)) > 1:
            raise ValueRangeError(
                f"functional_call got multiple values for keys {sorted(tied)}, which are tied. Consider using "
                "tie_weights=False"
            )
        if values:
            table.update(dict.fromkeys(tied, values[0]))
    return table


def _require_names(module: Module, replacements: Mapping[str, Tensor]) -> None:
    own = _all_tensors(module)
    errors = [
        f"{what} key(s): {', '.join(map(repr, sorted(names)))}."
        for what, names in (("Unexpected", replacements.keys() - own), ("Missing", own.keys() - replacements))
        if names
    ]
    if errors:
        lines = "\n\t".join(errors)
        raise StateDictError(f"Error(s) in reparametrizing for {name_of(module)}:\n\t{lines}")


_ABSENT: Any = object()


@contextmanager
def _in_place(module: Module, replacements: dict[str, Tensor]) -> Generator[None]:
    """Replace tensors in the modules' tables while the block runs; `replacements` then gets the tables' last values."""
    swapped: list[tuple[str, Module, str, Any]] = []
    try:
        for name, tensor in replacements.items():
            path, _, key = name.rpartition(".")
            owner = module.get_submodule(path)
            swapped.append((name, owner, key, _swap(owner, key, tensor)))
        yield
    finally:
        for name, owner, key, before in reversed(swapped):
            replacements[name] = _swap(owner, key, before)


def _swap(owner: Module, key: str, tensor: Any) -> Any:
    """Set a parameter, buffer, property or plain attribute; returns what it was before, `_ABSENT` if there was none.

    The setter of a property, as of a parametrized tensor, sets what the property is computed from.
    """
    table = next((table for table in (parameters_of(owner), buffers_of(owner)) if key in table), None)
    if table is None:
        before = getattr(owner, key, _ABSENT)
        if before is not _ABSENT and not isinstance(before, Tensor):
            raise ArgumentError(f"attribute `{key}`: {before} is not an instance of torch.Tensor")
        # A parametrized tensor is a property, which has no entry in the tables.
        if hasattr(getattr(type(owner), key, None), "__set__"):
            setattr(owner, key, tensor)
            return before
        table = owner.__dict__
    before = table.pop(key, _ABSENT) if tensor is _ABSENT else table.get(key, _ABSENT)
    if tensor is not _ABSENT:
        table[key] = tensor
    return before


def functional_call(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    args: PyTree = None,
    kwargs: Kwargs | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Result:
    """The deprecated name of `weft.func.functional_call`."""
    warnings.warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be removed in a future "
        "version of PyTorch. Please use `torch.func.functional_call` instead which is a drop-in replacement.",
        FutureWarning,
        stacklevel=2,
    )
    return call_with(module, parameters_and_buffers, args, kwargs, tie_weights, strict)
