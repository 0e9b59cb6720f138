"""State dicts of wrapped modules and of their optimizers, with names as without wrappers."""

from __future__ import annotations

from collections.abc import Mapping

from weft._base.types import Arg, SavedState
from weft._tensor.tensor import Tensor
from weft.distributed._world import get_rank
from weft.distributed.fsdp._options import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    OptimStateDictConfig,
    OptimStateKeyType,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from weft.distributed.tensor._api import distribute_tensor
from weft.distributed.tensor._dtensor import DTensor
from weft.errors import DistError, ValueRangeError
from weft.nn import Parameter
from weft.nn._module import Module
from weft.optim._optimizer import Optimizer

INNER = "_fsdp_wrapped_module"
"""The name of the wrapped module in its wrapper."""

_CONFIGS: dict[StateDictType, tuple[type[StateDictConfig], type[OptimStateDictConfig]]] = {
    StateDictType.FULL_STATE_DICT: (FullStateDictConfig, FullOptimStateDictConfig),
    StateDictType.LOCAL_STATE_DICT: (LocalStateDictConfig, LocalOptimStateDictConfig),
    StateDictType.SHARDED_STATE_DICT: (ShardedStateDictConfig, ShardedOptimStateDictConfig),
}


def settings_of(
    kind: StateDictType, config: StateDictConfig | None, optim_config: OptimStateDictConfig | None
) -> StateDictSettings:
    """Settings of a type; `RuntimeError` for options of another type."""
    expected, optim_expected = _CONFIGS[kind]
    config, optim_config = config or expected(), optim_config or optim_expected()
    if type(config) is not expected:
        raise DistError(f"Expected state_dict_config of type {expected} but got {type(config)}")
    if type(optim_config) is not optim_expected:
        raise DistError(f"Expected optim_state_dict_config of type {optim_expected} but got {type(optim_config)}")
    return StateDictSettings(kind, config, optim_config)


# --- of modules ---


def saved(module: Module, state: SavedState, prefix: str, local_metadata: object) -> None:
    """A hook on the state dict of a wrapper: names without it, and values as its settings say."""
    del local_metadata
    settings: StateDictSettings = module._settings
    inner = f"{prefix}{INNER}."
    for key in [key for key in state if key.startswith(inner)]:
        value = _value_for(state.pop(key), settings.state_dict_type)
        if _is_for_this_rank(settings.state_dict_config):
            state[prefix + key[len(inner) :]] = value


def loading(module: Module, state: SavedState, prefix: str, *rest: Arg) -> None:
    """A hook before a wrapper is loaded: its own names, and parts that were saved as plain tensors."""
    del rest
    is_local = module._settings.state_dict_type is StateDictType.LOCAL_STATE_DICT
    parts = dict(module.named_parameters()) if is_local else {}
    for key in [key for key in state if key.startswith(prefix) and not key.startswith(f"{prefix}{INNER}.")]:
        name = key[len(prefix) :]
        state[f"{prefix}{INNER}.{name}"] = _part_like(parts.get(name), state.pop(key))


def _value_for(value: object, kind: StateDictType) -> object:
    if not isinstance(value, DTensor) or kind is StateDictType.SHARDED_STATE_DICT:
        return value
    return (value.full_tensor() if kind is StateDictType.FULL_STATE_DICT else value.to_local()).detach()


def _is_for_this_rank(config: object) -> bool:
    return not getattr(config, "rank0_only", False) or get_rank() == 0


def _part_like(parameter: Tensor | None, value: object) -> object:
    """A plain part as a part of the parameter."""
    if not isinstance(parameter, DTensor) or isinstance(value, DTensor) or not isinstance(value, Tensor):
        return value
    return DTensor.from_local(value, parameter.device_mesh, parameter.placements, shape=parameter.shape)


# --- of optimizers ---


def named_state(
    parameters: Mapping[str, Parameter], optimizer: Optimizer, state: SavedState | None, settings: StateDictSettings
) -> SavedState:
    """An optimizer's state dict with names in place of numbers, and values as the settings say."""
    state = state or dict(optimizer.state_dict())
    names = _names_of(parameters, optimizer)
    values = {
        names.get(key, key): {entry: _value_for(x, settings.state_dict_type) for entry, x in one.items()}
        for key, one in state["state"].items()
    }
    groups = [{**group, "params": [names.get(key, key) for key in group["params"]]} for group in state["param_groups"]]
    is_for_this_rank = _is_for_this_rank(settings.optim_state_dict_config)
    return {"state": values, "param_groups": groups} if is_for_this_rank else {}


def numbered_state(
    parameters: Mapping[str, Parameter], optimizer: Optimizer, state: SavedState, *, is_named: bool
) -> SavedState:
    """The reverse: numbers in place of names, unless the optimizer goes by names, and values placed as parameters."""
    numbers = {name: number for number, name in _names_of(parameters, optimizer).items()}
    unknown = [key for key in state["state"] if key not in numbers]
    if unknown:
        raise ValueRangeError(f"the state dict has state of {unknown[0]}, which is no parameter of the optimizer")
    values = {
        key if is_named else numbers[key]: {entry: _placed(parameters[key], x) for entry, x in one.items()}
        for key, one in state["state"].items()
    }
    groups = [
        {**group, "params": [key if is_named else numbers[key] for key in group["params"]]}
        for group in state["param_groups"]
    ]
    return {"state": values, "param_groups": groups}


def _names_of(parameters: Mapping[str, Parameter], optimizer: Optimizer) -> dict[int, str]:
    """The names of an optimizer's parameters by their numbers."""
    names = {parameter: name for name, parameter in parameters.items()}
    ordered = dict.fromkeys(parameter for group in optimizer.param_groups for parameter in group["params"])
    missing = [parameter for parameter in ordered if parameter not in names]
    if missing:
        raise ValueRangeError("the optimizer has a parameter that the model does not have; make it after wrapping")
    return {number: names[parameter] for number, parameter in enumerate(ordered)}


def rekeyed(
    parameters: Mapping[str, Parameter], optimizer: Optimizer | None, state: SavedState, kind: OptimStateKeyType
) -> SavedState:
    """A state dict with names in place of numbers, or the reverse; without an optimizer, in the order of the model."""
    names = dict(enumerate(parameters)) if optimizer is None else _names_of(parameters, optimizer)
    table: dict[object, object] = (
        {**names} if kind is OptimStateKeyType.PARAM_NAME else {name: number for number, name in names.items()}
    )
    groups = [{**group, "params": [table.get(key, key) for key in group["params"]]} for group in state["param_groups"]]
    return {"state": {table.get(key, key): value for key, value in state["state"].items()}, "param_groups": groups}


def _placed(parameter: Tensor | None, value: object) -> object:
    """State with one number for each element of a parameter, placed as that is; other state as it is."""
    if not isinstance(parameter, DTensor) or isinstance(value, DTensor) or not isinstance(value, Tensor):
        return value
    if value.shape == parameter.shape:
        return distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)
    return _part_like(parameter, value) if value.ndim == parameter.ndim else value
