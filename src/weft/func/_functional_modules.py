"""Modules as functions of tuples of their parameters and buffers, by the older names of `functional_call`."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft._base.types import Arg, Result
from weft.errors import OutOfRangeError
from weft.func._modules import functional_call, stack_module_state
from weft.nn._module import Module

if TYPE_CHECKING:
    from weft._tensor.tensor import Tensor

Names = tuple[str, ...]


class FunctionalModuleWithBuffers(Module):
    """A module as a function: `fmodel(params, buffers, *args)`. `param_names` and `buffer_names` say their order."""

    def __init__(
        self,
        stateless_model: Module,
        param_names: Names,
        buffer_names: Names,
        param_names_map: Mapping[str, list[str]],
        buffer_names_map: Mapping[str, list[str]],
    ) -> None:
        super().__init__()
        self.stateless_model = stateless_model
        self.param_names, self.buffer_names = param_names, buffer_names
        self.all_names_map = {**param_names_map, **buffer_names_map}

    def forward(self, params: Sequence[Tensor], buffers: Sequence[Tensor], *args: Arg, **kwargs: Arg) -> Result:
        """What the module gives for these parameters and buffers."""
        tensors = dict(zip((*self.param_names, *self.buffer_names), (*params, *buffers), strict=True))
        return functional_call(self.stateless_model, tensors, args, kwargs)


class FunctionalModule(FunctionalModuleWithBuffers):
    """A module without buffers as a function: `fmodel(params, *args)`."""

    def __init__(self, stateless_model: Module, param_names: Names, names_map: Mapping[str, list[str]]) -> None:
        super().__init__(stateless_model, param_names, (), names_map, {})

    def forward(self, params: Sequence[Tensor], *args: Arg, **kwargs: Arg) -> Result:
        """What the module gives for these parameters."""
        return super().forward(params, (), *args, **kwargs)


def make_functional_with_buffers(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """A module as a function of its parameters and buffers, and the tuples of these.

    The function has a copy of the module without elements. `func.functional_call` does the same without a copy.
    """
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    function = FunctionalModuleWithBuffers(
        copy.deepcopy(model).to("meta"),
        tuple(parameters),
        tuple(buffers),
        _all_names(model.named_parameters(remove_duplicate=False), parameters),
        _all_names(model.named_buffers(remove_duplicate=False), buffers),
    )
    return function, _values(parameters, disable_autograd_tracking), tuple(buffers.values())


def make_functional(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModule, tuple[Tensor, ...]]:
    """A module without buffers as a function of its parameters, and the tuple of these; `RuntimeError` for others."""
    if any(True for _ in model.buffers()):
        raise OutOfRangeError(
            "make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead."
        )
    parameters = dict(model.named_parameters())
    names = _all_names(model.named_parameters(remove_duplicate=False), parameters)
    function = FunctionalModule(copy.deepcopy(model).to("meta"), tuple(parameters), names)
    return function, _values(parameters, disable_autograd_tracking)


def combine_state_for_ensemble(
    models: Sequence[Module],
) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Several modules of one class as one function, and their parameters and buffers, stacked for `vmap`."""
    if not models:
        raise OutOfRangeError("combine_state_for_ensemble: Expected at least one model, got 0.")
    if not (all(model.training for model in models) or not any(model.training for model in models)):
        raise OutOfRangeError("combine_state_for_ensemble: Expected all models to have the same training/eval mode.")
    if len({type(model) for model in models}) > 1:
        raise OutOfRangeError("combine_state_for_ensemble: Expected all models to be of the same class.")
    parameters, buffers = stack_module_state(models)
    function, _, _ = make_functional_with_buffers(models[0])
    return function, tuple(parameters.values()), tuple(buffers.values())


def _values(parameters: Mapping[str, Any], detached: bool) -> tuple[Tensor, ...]:
    return tuple([x.detach() if detached else x for x in parameters.values()])


def _all_names(named: Any, unique: Mapping[str, Any]) -> dict[str, list[str]]:
    """All names of each tensor, by its first one."""
    names: dict[str, list[str]] = {name: [] for name in unique}
    first = {id(tensor): name for name, tensor in unique.items()}
    for name, tensor in named:
        names[first[id(tensor)]].append(name)
    return names
