"""A context that gives an optimizer other parameters and state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from weft._base.guards import is_dict, is_list
from weft._base.types import SavedState
from weft._tensor.tensor import Tensor
from weft.errors import StateDictError
from weft.optim._optimizer import Group, Optimizer

_NAME = "swap_in_optimizer_params_and_state"


@contextmanager
def swap_in_optimizer_params_and_state(
    optimizer: Optimizer, swapin_parameters: Mapping[str, Tensor], swapin_optim_state: SavedState
) -> Generator[None]:
    """Let an optimizer, which has state, step on other parameters with the state of a state dict, within the block.

    The parameters are in the order of the optimizer's own. Tensors of the state dict are updated in place; new entries
    of state are dropped at the end.
    """
    if not optimizer.state:
        raise StateDictError(f"{_NAME} requires initialized optimizer state.")
    if not is_dict(swapin_optim_state):
        raise StateDictError(f"{_NAME} requires a DCP-style optimizer state_dict.")
    entries = _entries(swapin_optim_state.get("state"))
    groups = _groups(optimizer, swapin_optim_state.get("param_groups"))
    params = list(swapin_parameters.values())
    numbers = [number for group in groups for number in group["params"]]
    if len(numbers) > len(params):
        raise StateDictError(f"{_NAME} requires the explicit parameter state to match optimizer.param_groups ordering.")
    extra = [key for key in entries if key not in numbers]
    if extra:
        raise StateDictError(
            f"{_NAME} requires swapin_optim_state['state'] to be keyed only by packed parameter ids from "
            f"param_groups[*]['params']; got extra keys {extra!r}."
        )
    old_state, old_groups = optimizer.state, [dict(group) for group in optimizer.param_groups]
    try:
        rest = iter(params)
        for group, new in zip(optimizer.param_groups, groups, strict=True):
            group.update({**new, "params": [next(rest) for _ in new["params"]]})
        pairs = zip(params, numbers, strict=False)
        optimizer.state = defaultdict(dict, {param: dict(entries.get(number, {})) for param, number in pairs})
        yield
    finally:
        # In place: schedulers and users hold the dicts of the groups.
        for group, old in zip(optimizer.param_groups, old_groups, strict=True):
            group.clear()
            group.update(old)
        optimizer.state = old_state


def _entries(state: object) -> dict[int, SavedState]:
    if not is_dict(state):
        raise StateDictError(
            f"{_NAME} requires swapin_optim_state['state'] to be a dict mapping packed parameter ids to per-param "
            f"state dicts, got {type(state).__name__}."
        )
    if any(isinstance(key, Tensor) for key in state):
        raise StateDictError(f"{_NAME} requires optimizer.state_dict()-style state keyed by packed parameter ids.")
    if any(isinstance(key, int) and not isinstance(entry, dict) for key, entry in state.items()):
        raise StateDictError(f"{_NAME} requires per-parameter optimizer state entries to be dictionaries.")
    return state


def _groups(optimizer: Optimizer, groups: object) -> list[Group]:
    if not is_list(groups):
        raise StateDictError(
            f"{_NAME} requires swapin_optim_state['param_groups'] to be a list of param-group dicts, "
            f"got {type(groups).__name__}."
        )
    if len(groups) != len(optimizer.param_groups):
        raise StateDictError("swapin_optim_state has a different number of parameter groups than the live optimizer.")
    for at, (group, new) in enumerate(zip(optimizer.param_groups, groups, strict=True)):
        _check_group(at, group, new)
    return groups


def _check_group(at: int, group: Group, new: object) -> None:
    if not is_dict(new):
        raise StateDictError(f"{_NAME} requires each optimizer param group to be a dictionary.")
    numbers = new.get("params")
    if not is_list(numbers) or not all(isinstance(number, int) for number in numbers):
        raise StateDictError(
            f"{_NAME} requires optimizer.state_dict()-style param_groups[*]['params'] entries keyed by packed "
            "parameter ids."
        )
    if len(group["params"]) != len(numbers):
        raise StateDictError(
            f"swapin_optim_state param group {at} has a different number of params than the live optimizer param group."
        )
    only_new, only_live = [key for key in new if key not in group], [key for key in group if key not in new]
    if only_new or only_live:
        raise StateDictError(
            f"{_NAME} requires optimizer.state_dict()-style param group keys to exactly match the live optimizer group "
            f"keys for group {at}. Keys only in swap-in: {only_new}. Keys only in live: {only_live}."
        )
