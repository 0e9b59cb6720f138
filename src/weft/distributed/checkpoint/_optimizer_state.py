"""States of optimizers by the names of parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from weft._base.state import using
from weft._tensor.composite.create import zeros_like
from weft._tensor.tensor import Tensor, wrap
from weft._tensor.view import own
from weft.distributed.checkpoint._full_state import placed_as
from weft.distributed.checkpoint._names import ParameterNames
from weft.distributed.checkpoint._nested_dict import flatten_state_dict, set_element
from weft.errors import StateDictError, UnsupportedStateError
from weft.optim import Optimizer

State = dict[str, Any]
"""A state dict of an optimizer: `state` by parameter, and `param_groups`."""


# --- what an optimizer has --------------------------------------------------------------------------------------


def named_state(optimizer: Optimizer, names: ParameterNames) -> State:
    """The state dict of an optimizer with names in place of numbers; `RuntimeError` for a parameter without one.

    One that has not made a step yet gives the state with which it begins.
    """
    state = optimizer.state_dict() if optimizer.state else _initial_state(optimizer)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    name_of = [_name_of(parameter, at, names) for at, parameter in enumerate(parameters)]
    groups = [{**group, "params": [name_of[number] for number in group["params"]]} for group in state["param_groups"]]
    return {"state": {name_of[number]: value for number, value in state["state"].items()}, "param_groups": groups}


def _name_of(parameter: Tensor, at: int, names: ParameterNames) -> str:
    if not names.of(parameter):
        raise StateDictError(f"parameter {at} of the optimizer, of size {list(parameter.shape)}, is not the model's")
    return names.of(parameter)[0]


def _initial_state(optimizer: Optimizer) -> State:
    """The state that a step without gradients would make; the optimizer and its parameters stay as they are."""
    # As in PyTorch: before its first step an optimizer has no state, and what is loaded needs entries to go into.
    with _unchanged(optimizer):
        optimizer.step()
        states = [*optimizer.state.values()]
        for state in states:
            state.update({name: zeros_like(value) for name, value in state.items() if name == "step"})
        kept = optimizer.state_dict()["state"]
    return {**optimizer.state_dict(), "state": kept}


@contextmanager
def _unchanged(optimizer: Optimizer) -> Iterator[None]:
    """Undo what a step changes; within the block all gradients are zero, and hooks of steps are not called."""
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    before = [(parameter, wrap(own(parameter._read())), parameter.grad) for parameter in parameters]
    decays = [(group, group["weight_decay"]) for group in optimizer.param_groups if "weight_decay" in group]
    for group, _ in decays:
        # Decay changes parameters even where gradients are zero.
        group["weight_decay"] = 0
    optimizer.stepping = True
    try:
        for parameter in parameters:
            parameter.grad = zeros_like(parameter)
        yield
    finally:
        optimizer.stepping = False
        # The optimizer had none; the step was made to see which state it makes.
        optimizer.state.clear()
        for group, decay in decays:
            group["weight_decay"] = decay
        with using(grad=False):
            for parameter, value, grad in before:
                parameter.copy_(value)
                parameter.grad = grad


# --- loading ----------------------------------------------------------------------------------------------------


def load_named(optimizer: Optimizer, state: State, current: State, names: ParameterNames, *, strict: bool) -> None:
    """Load a state dict by names, which may have more parameters than `current`, that of the optimizer.

    Whole tensors are distributed as those of `current`. A state dict may also be the optimizer's own, with numbers, and
    one without any state is that of an optimizer that has made no step.
    """
    if _is_numbered(state):
        if _sizes(state) != _sizes(current):
            optimizer.load_state_dict(state)  # raises
        state = _named(state, current)
    states: dict[str, Any] = {}
    groups = []
    for group, current_group in zip(optimizer.param_groups, current["param_groups"], strict=True):
        params = []
        for parameter, name in zip(group["params"], current_group["params"], strict=True):
            saved_name = _saved_name(names.of(parameter), state)
            params.append(saved_name)
            own_state = current["state"].get(name, {})
            if saved_name in state.get("state", {}):
                states[saved_name] = _placed(state["state"][saved_name], own_state)
            elif strict and own_state and state.get("state"):
                raise StateDictError(
                    f"Missing optimizer state for parameter '{name}' in checkpoint. The parameter requires gradients "
                    "but has no saved optimizer state. To load anyway, use StateDictOptions(strict=False)."
                )
        groups.append({**_options_of(params, state, current_group, strict=strict), "params": params})
    optimizer.load_state_dict({"state": states, "param_groups": groups})


def _is_numbered(state: State) -> bool:
    """Whether a state dict has numbers for its parameters, as `Optimizer.state_dict` gives it."""
    return any(isinstance(key, int) for group in state.get("param_groups", []) for key in group["params"])


def _sizes(state: State) -> list[int]:
    return [len(group["params"]) for group in state["param_groups"]]


def _named(state: State, current: State) -> State:
    """A state dict with numbers, by the names of `current`, whose groups have as many parameters."""
    groups = list(zip(state["param_groups"], current["param_groups"], strict=True))
    name_of = {
        number: name for saved, one in groups for number, name in zip(saved["params"], one["params"], strict=True)
    }
    return {
        "state": {name_of.get(number, number): entry for number, entry in state["state"].items()},
        "param_groups": [{**saved, "params": one["params"]} for saved, one in groups],
    }


def _saved_name(names: Iterable[str], state: State) -> str:
    """The name that a state dict has for a parameter, which may have several."""
    saved = {name for group in state.get("param_groups", []) for name in group["params"]}
    names = list(names)
    return next((name for name in names if name in saved), names[0])


def _options_of(params: list[str], state: State, current: dict[str, Any], *, strict: bool) -> dict[str, Any]:
    """The options that a state dict has for a group of parameters."""
    for group in state.get("param_groups", []):
        if not set(params).isdisjoint(group["params"]):
            return group
    if strict and params:
        raise StateDictError(f"no parameter group of the loaded state dict has the parameter '{params[0]}'")
    return current


def _placed(saved: Any, current: Any) -> Any:
    """A parameter's saved state, distributed as its current one."""
    if isinstance(saved, Mapping) and isinstance(current, Mapping):
        return {key: _placed(value, current.get(key)) for key, value in saved.items()}
    return placed_as(current, saved) if isinstance(saved, Tensor) else saved


# --- as one dict ------------------------------------------------------------------------------------------------


def flattened(state: State) -> dict[str, Any]:
    """A state dict as one dict: `state.NAME.exp_avg`, `param_groups.NAME.lr`."""
    result: dict[str, Any] = {}
    for name, entry in state["state"].items():
        for key, value in flatten_state_dict(entry)[0].items():
            if not isinstance(value, (Tensor, int, float)):
                raise UnsupportedStateError(
                    "Flattening optimizer state_dict only supports tensor, int, float, dict states now. Type is "
                    f"{type(value)}."
                )
            result[f"state.{name}.{key}"] = value
    for group in state["param_groups"]:
        for name in group["params"]:
            result.update({f"param_groups.{name}.{key}": value for key, value in group.items() if key != "params"})
    return result


def unflattened(flat: Mapping[str, Any], current: State) -> State:
    """What `flattened` has made one dict, with the groups of an optimizer's current state dict.

    A group has the options of its first parameter; `RuntimeError` if one is missing.
    """
    groups = []
    for group in current["param_groups"]:
        keys = {option: f"param_groups.{group['params'][0]}.{option}" for option in group if option != "params"}
        missing = [key for key in keys.values() if key not in flat]
        if missing:
            raise StateDictError(f"Missing key(s) in the optimizer's state dict: {', '.join(missing)}")
        groups.append({"params": group["params"], **{option: flat[key] for option, key in keys.items()}})
    names = {name for group in groups for name in group["params"]}
    states: dict[str, Any] = {}
    for key, value in flat.items():
        if key.startswith("state."):
            name, path = _split(key.removeprefix("state."), names)
            if name:
                set_element(states.setdefault(name, {}), path, value)
    return {"state": states, "param_groups": groups}


def _split(key: str, names: set[str]) -> tuple[str, tuple[str, ...]]:
    """The parameter that a key begins with, and the rest of it as a path; an empty name for another optimizer's."""
    words = key.split(".")
    for at in range(1, len(words)):
        name = ".".join(words[:at])
        if name in names:
            return name, tuple(words[at:])
    return "", ()
