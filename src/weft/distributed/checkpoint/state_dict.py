"""State dicts of models and optimizers whose keys do not depend on how the model is distributed.

Keys are the names of parameters and buffers in the model that one process has: without the prefix of data parallelism.
States of optimizers have these names, too, in place of numbers. So a checkpoint can be loaded by any other number of
processes, and with other parallelism.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from weft._base.site import warn_user
from weft._base.state import using
from weft._base.types import Arg, SavedState
from weft.distributed.checkpoint._full_state import broadcast_state, collected
from weft.distributed.checkpoint._names import ParameterNames
from weft.distributed.checkpoint._optimizer_state import flattened, load_named, named_state, unflattened
from weft.errors import OptionError, StateDictError, ValueRangeError
from weft.nn import Module
from weft.nn._state_dict import IncompatibleKeys
from weft.optim import Optimizer

Optimizers = Optimizer | Iterable[Optimizer]


@dataclass
class StateDictOptions:
    """How state dicts are collected and loaded.

    full_state_dict               tensors are whole and plain; else distributed ones stay so
    cpu_offload                   tensors are on the CPU; with `full_state_dict`, ranks other than 0 get an empty dict
    ignore_frozen_params          parameters that require no gradient are left out
    keep_submodule_prefixes       with `submodules`, keys begin with the names of these
    strict                        keys that do not fit are errors
    broadcast_from_rank0          rank 0 alone has the full state dict, and the others get their parts from it
    flatten_optimizer_state_dict  the state of an optimizer is one dict: `state.NAME.exp_avg`, `param_groups.NAME.lr`
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


# --- collecting -------------------------------------------------------------------------------------------------


def get_model_state_dict(
    model: Module, *, submodules: set[Module] | None = None, options: StateDictOptions | None = None
) -> SavedState:
    """The parameters and buffers of a model, by name; with `submodules`, which is deprecated, those of some modules."""
    options = _checked(options, submodules)
    names = ParameterNames(model)
    state = {names.canonical(key): value for key, value in model.state_dict().items()}
    if submodules:
        state = _within(state, names.prefixes_of(submodules), keep=options.keep_submodule_prefixes)
    if options.ignore_frozen_params:
        frozen = {name for name, param in names.parameters.items() if not param.requires_grad}
        state = {key: value for key, value in state.items() if key not in frozen}
    return collected(state, full=options.full_state_dict, offload=options.cpu_offload)


def get_optimizer_state_dict(
    model: Module,
    optimizers: Optimizers,
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> SavedState:
    """The states of optimizers of a model's parameters, by the parameters' names, as one state dict.

    An optimizer that has not made a step gives the state with which it would begin, and is not changed. With
    `submodules`, only the states of their parameters are in it.
    """
    return _optimizer_state_dict(model, _some(optimizers), submodules, options)


def _optimizer_state_dict(
    model: Module, optimizers: list[Optimizer], submodules: set[Module] | None, options: StateDictOptions | None
) -> SavedState:
    options = _checked(options, submodules)
    names = ParameterNames(model)
    state: SavedState = {"state": {}, "param_groups": []}
    for optimizer in optimizers:
        own = named_state(optimizer, names)
        state["state"].update(own["state"])
        state["param_groups"] += own["param_groups"]
    if submodules:
        state["state"] = _within(state["state"], names.prefixes_of(submodules), keep=True)
    if options.flatten_optimizer_state_dict:
        state = flattened(state)
    return collected(state, full=options.full_state_dict, offload=options.cpu_offload)


def get_state_dict(
    model: Module,
    optimizers: Optimizers,
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> tuple[SavedState, SavedState]:
    """The state dicts of a model and of its optimizers, of which there may be none."""
    return (
        get_model_state_dict(model, submodules=submodules, options=options),
        _optimizer_state_dict(model, _as_list(optimizers), submodules, options),
    )


def _within(state: SavedState, prefixes: list[str], *, keep: bool) -> SavedState:
    return {
        key if keep else key[len(prefix) :]: value
        for key, value in state.items()
        for prefix in prefixes
        if key.startswith(prefix)
    }


# --- loading ----------------------------------------------------------------------------------------------------


def set_model_state_dict(
    model: Module, model_state_dict: Mapping[Arg, Arg], *, options: StateDictOptions | None = None
) -> IncompatibleKeys:
    """Load what `get_model_state_dict` has collected: whole plain tensors, or distributed ones, into either kind.

    Keys may be modules of the model, with their state dicts as values; this is deprecated.

    Returns the missing and the unexpected keys. `RuntimeError` if there are such and `strict` is set, or for another
    shape; nothing has been loaded then.
    """
    options = _checked(options)
    names = ParameterNames(model)
    model_state_dict = _by_name(model_state_dict or {}, names)
    if options.broadcast_from_rank0:
        own = {names.canonical(key): value for key, value in model.state_dict().items()}
        model_state_dict = broadcast_state(model_state_dict, own)
    elif not model_state_dict and options.strict:
        raise StateDictError("The option indicates that model state_dict is required to load, but it is empty.")
    keys = {names.canonical(key): key for key in model.state_dict()}
    return model.load_state_dict(
        {keys.get(key, key): value for key, value in model_state_dict.items()}, strict=options.strict
    )


def set_optimizer_state_dict(
    model: Module,
    optimizers: Optimizers,
    optim_state_dict: SavedState,
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Load what `get_optimizer_state_dict` has collected, of more parameters than the optimizers have or of the same.

    Call it before a backward pass or after a step, as gradients are cleared. `RuntimeError` if a parameter's state is
    missing and `strict` is set.
    """
    _load_optimizers(model, _some(optimizers), optim_state_dict, options)


def _load_optimizers(
    model: Module, optimizers: list[Optimizer], optim_state_dict: SavedState, options: StateDictOptions | None
) -> None:
    options = _checked(options)
    names = ParameterNames(model)
    for optimizer in optimizers:
        current = named_state(optimizer, names)
        state = optim_state_dict or {}
        if options.broadcast_from_rank0:
            state = broadcast_state(state, flattened(current) if options.flatten_optimizer_state_dict else current)
        if "state" not in state and "param_groups" not in state:
            state = unflattened(state, current)
        with using(grad=False):
            load_named(optimizer, state, current, names, strict=options.strict)


def set_state_dict(
    model: Module,
    optimizers: Optimizers,
    *,
    model_state_dict: Mapping[Arg, Arg],
    optim_state_dict: SavedState,
    options: StateDictOptions | None = None,
) -> IncompatibleKeys:
    """Load the state dicts of a model, unless it is empty, and of its optimizers, of which there may be none."""
    _load_optimizers(model, _as_list(optimizers), optim_state_dict, options)
    options = _checked(options)
    if not model_state_dict:
        # As in PyTorch, an empty state of the model means the optimizers alone, which `set_model_state_dict` refuses.
        options = replace(options, strict=False)
    return set_model_state_dict(model, model_state_dict, options=options)


def _by_name(state: Mapping[Arg, Arg], names: ParameterNames) -> SavedState:
    """A model's state dict by names, also if it is by modules."""
    if not any(isinstance(key, Module) for key in state):
        return dict(state)
    warn_user(
        "Passing model_state_dict as a dict from modules to their state dicts is deprecated: begin each key with the "
        "module's name in the model",
        FutureWarning,
    )
    return {
        prefix + key: value
        for module, part in state.items()
        for prefix in names.prefixes_of({module})
        for key, value in part.items()
    }


def _checked(options: StateDictOptions | None, submodules: set[Module] | None = None) -> StateDictOptions:
    if submodules:
        warn_user(
            "Getting submodules only model/optim state_dict is deprecated: choose the keys that begin with the names "
            "of the submodules",
            FutureWarning,
        )
    options = options or StateDictOptions()
    if options.broadcast_from_rank0 and not options.full_state_dict:
        raise ValueRangeError("full_state_dict must be True when broadcast_from_rank0 is True.")
    return options


def _as_list(optimizers: Optimizers) -> list[Optimizer]:
    return [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)


def _some(optimizers: Optimizers) -> list[Optimizer]:
    result = _as_list(optimizers)
    if not result:
        raise OptionError("Optimizers are not passed in: give one, or several")
    return result
