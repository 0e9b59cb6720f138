"""Modules as functions of their parameters and buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from weft._base.types import Kwargs, PyTree, Result
from weft._tensor.codegen import op
from weft.errors import StateDictError, ValueRangeError
from weft.nn._module import Module
from weft.nn._norm import _BatchNorm
from weft.nn.utils.stateless import call_with

if TYPE_CHECKING:
    from weft._tensor.tensor import Tensor


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: dict[str, Tensor] | Sequence[dict[str, Tensor]],
    args: PyTree = None,
    kwargs: Kwargs | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Result:
    """Call a module with its parameters and buffers replaced by other tensors, given by name.

    The names are the keys of one dict or of several; gradients flow to the new tensors. `args` is a tuple of arguments,
    or one argument. With `tie_weights`, a tensor that has several names is replaced under all of them. With `strict`,
    missing and unknown names are errors. A parametrized tensor is set by `right_inverse`, so that its gradients do not
    flow; `RuntimeError` without one.
    """
    dicts = parameter_and_buffer_dicts
    if not isinstance(dicts, dict):
        if not isinstance(dicts, Sequence):
            raise ValueRangeError(
                f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(dicts)}"
            )
        if not all(isinstance(each, dict) for each in dicts):
            raise ValueRangeError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
        repeated = [name for name, times in Counter(name for each in dicts for name in each).items() if times > 1]
        if repeated:
            raise ValueRangeError(
                f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous"
            )
        dicts = {name: tensor for each in dicts for name, tensor in each.items()}
    return call_with(module, dicts, args, kwargs, tie_weights, strict)


def stack_module_state(models: Iterable[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Parameters and buffers of several models of one class, by name. Each is stacked along a new first dim."""
    modules = list(models)
    if not modules:
        raise StateDictError("stack_module_state: Expected at least one model, got 0.")
    if len({model.training for model in modules}) > 1:
        raise StateDictError("stack_module_state: Expected all models to have the same training/eval mode.")
    if len({type(model) for model in modules}) > 1:
        raise StateDictError("stack_module_state: Expected all models to be of the same class.")
    return (
        _stacked([model.named_parameters() for model in modules]),
        _stacked([model.named_buffers() for model in modules]),
    )


def _stacked(entries: list[Iterator[tuple[str, Tensor]]]) -> dict[str, Tensor]:
    dicts = [dict(named) for named in entries]
    return {name: _stacked_leaf(name, [each[name] for each in dicts]) for name in dicts[0]}


def _stacked_leaf(name: str, tensors: list[Tensor]) -> Tensor:
    flags = {tensor.requires_grad for tensor in tensors}
    if len(flags) > 1:
        raise StateDictError(f"Expected {name} from each model to have the same .requires_grad")
    return op.stack(tensors).detach().requires_grad_(flags.pop())


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Let all batch norms in `root` forget their running statistics, which `vmap` cannot update; returns `root`."""
    for module in root.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
