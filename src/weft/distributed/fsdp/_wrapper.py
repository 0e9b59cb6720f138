"""The older interface of fully sharded data parallelism: a module that wraps another one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from typing import Self

import numpy as np

from weft._base.dtype import DType
from weft._base.guards import is_iterable
from weft._base.state import using
from weft._base.types import Arg, Result, SavedState
from weft._base.usage import log_api_usage_once
from weft._tensor.tensor import Tensor, placed_with
from weft.distributed._broadcast_coalesced import broadcast_coalesced
from weft.distributed._group import ProcessGroup
from weft.distributed._module_wrapper import ModuleWrapper
from weft.distributed._world import AnyGroup, require_group
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.fsdp import _saving
from weft.distributed.fsdp._data_parallel import DataParallel
from weft.distributed.fsdp._options import (
    BackwardPrefetch,
    CPUOffload,
    MixedPrecision,
    OptimStateDictConfig,
    OptimStateKeyType,
    ShardingStrategy,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from weft.distributed.fsdp._saving import INNER
from weft.distributed.fsdp._shard import shard
from weft.distributed.fsdp._state import ShardState, require_state, state_of
from weft.distributed.fsdp.wrap import Policy, wrap_submodules
from weft.distributed.tensor._dtensor import DTensor
from weft.errors import ArgumentError, DistError, PreconditionError, UnsupportedCallError, ValueRangeError
from weft.nn import Module, Parameter
from weft.nn.utils import clip_grad_norm_
from weft.optim._optimizer import Optimizer


class FullyShardedDataParallel(ModuleWrapper):
    """A module whose parameters are sharded among the ranks, as by `fully_shard`, which new programs should call.

    sharding_strategy   what is divided (`ShardingStrategy`); the hybrid ones need a mesh of two dims, or two groups
    auto_wrap_policy    which modules below are wrapped by themselves (`weft.distributed.fsdp.wrap`)
    mixed_precision     types to compute and to reduce in
    ignored_states      modules or parameters that stay as they are; `ignored_modules` is the older name for modules
    sync_module_states  whether all ranks start from the parameters and buffers of the first one

    Parameters are distributed tensors, as with `use_orig_params`; there are no flat ones. What tunes memory and streams
    of accelerators is accepted. `param_init_fn` is called with every module below before it is sharded.
    """

    inner_name = INNER

    def __init__(
        self,
        module: Module,
        process_group: ProcessGroup | tuple[ProcessGroup, ProcessGroup] | None = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: CPUOffload | None = None,
        auto_wrap_policy: Policy | None = None,
        backward_prefetch: BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE,
        mixed_precision: MixedPrecision | None = None,
        ignored_modules: Iterable[Module] | None = None,
        param_init_fn: Callable[[Module], None] | None = None,
        device_id: object = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = False,
        ignored_states: Iterable[Parameter] | Iterable[Module] | None = None,
        device_mesh: DeviceMesh | None = None,
    ) -> None:
        log_api_usage_once("torch.distributed.fsdp")
        # Options of PyTorch's memory management, which change no number.
        del cpu_offload, backward_prefetch, device_id, forward_prefetch, limit_all_gathers, use_orig_params
        _require_module(module)
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        precision = mixed_precision or MixedPrecision()
        ranks = _ranks(process_group, device_mesh, strategy)
        modules, parameters = _ignored(ignored_modules, ignored_states)
        if param_init_fn is not None:
            if not callable(param_init_fn):
                raise ValueRangeError(f"Expected {param_init_fn} to be callable but got {type(param_init_fn)}")
            for inner in module.modules():
                param_init_fn(inner)
        if sync_module_states:
            _synchronise(module, ranks)
        if auto_wrap_policy is not None:
            for name, inner in module.named_modules():
                if state_of(inner) is not None:
                    raise ValueRangeError(
                        f"FSDP auto wrapping requires modules to not already have FSDP applied but found {name} in\n"
                        f"{module}"
                    )
            options = {
                "sharding_strategy": strategy,
                "mixed_precision": precision,
                "ignored_states": parameters,
                "device_mesh": ranks.mesh,
            }
            wrap_submodules(module, auto_wrap_policy, FullyShardedDataParallel, modules, parameters, options)
        if precision.buffer_dtype is not None:
            _cast_buffers(module, precision.buffer_dtype)
        super().__init__(module)
        self._settings = StateDictSettings()
        shard([self], ranks, precision.policy(), strategy.reshards, ignored=parameters)
        self._register_state_dict_hook(_saving.saved)
        self.register_load_state_dict_pre_hook(_saving.loading)

    # --- as a module ---

    def apply(self, fn: Callable[[Module], object]) -> FullyShardedDataParallel:
        """Call `fn` with every module below, and then with this one, while parameters are whole."""
        with FullyShardedDataParallel.summon_full_params(self):
            super().apply(fn)
        return self

    def _apply(self, *args: Arg, **kwargs: Arg) -> Self:
        for state in _states(self):
            state.reshard()
        return super()._apply(*args, **kwargs)

    @staticmethod
    def fsdp_modules(module: Module, root_only: bool = False) -> list[FullyShardedDataParallel]:
        """The wrappers in a module; with `root_only` those that are in no other wrapper."""
        wrappers = [inner for inner in module.modules() if isinstance(inner, FullyShardedDataParallel)]
        below = {inner for outer in wrappers for inner in outer.modules() if inner is not outer}
        return [wrapper for wrapper in wrappers if not (root_only and wrapper in below)]

    def check_is_root(self) -> bool:
        """Whether this is the outermost wrapper."""
        state = require_state(self)
        state.begin()
        return bool(state.is_root)

    # --- training ---

    @contextmanager
    def no_sync(self) -> Generator[None]:
        """Accumulate gradients in the block without communication; `RuntimeError` for an inner wrapper."""
        if not self.check_is_root():
            raise DistError(
                "`no_sync()` on inner FSDP instances is not supported. Please call `no_sync()` on root FSDP module."
            )
        groups = [group for state in _states(self) for group in state.groups]
        before = [(group, group.reduces) for group in groups]
        for group in groups:
            group.reduces = False
        try:
            yield
        finally:
            for group, reduces in before:
                group.reduces = reduces

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scale all gradients such that their norm is at most `max_norm`; returns the norm before."""
        if not self.check_is_root():
            raise DistError("`clip_grad_norm_()` should only be called on the root FSDP instance")
        norm = clip_grad_norm_(self.parameters(), max_norm, norm_type)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    @staticmethod
    @contextmanager
    def summon_full_params(
        module: Module,
        recurse: bool = True,
        writeback: bool = True,
        rank0_only: bool = False,
        offload_to_cpu: bool = False,
        with_grads: bool = False,
    ) -> Generator[None]:
        """Parameters of the wrappers in `module` are whole, plain leaves in the block. All ranks must enter it.

        Changes are kept with `writeback`; all ranks must make the same. With `rank0_only`, others keep their parts.
        """
        del offload_to_cpu
        if rank0_only and writeback:
            raise UnsupportedCallError(
                "writeback=True and rank0_only=True is not supported, as model parameter shapes will be different "
                "across ranks, and writing to them can lead to inconsistencies across ranks when the context is exited."
            )
        states = _states(module) if recurse else [state for m in [module] if (state := state_of(m)) is not None]
        if any(state.is_running for state in states):
            raise PreconditionError("Cannot manually unshard parameters during forward/backward")
        # What modules have may be out of date, or on the tape of a pass; the parts are what optimizers have updated.
        for state in states:
            state.reshard()
        held = [p for state in states for group in state.groups for p in group.parameters]
        wholes = [_whole(p.sharded, with_grads) for p in held]
        shows = not rank0_only or require_group(None).rank() == 0
        for parameter, whole in zip(held, wholes, strict=True):
            if shows:
                parameter.register(whole)
        try:
            yield
        finally:
            with using(grad=False):
                for parameter, whole in zip(held, wholes, strict=True):
                    parameter.install()
                    if writeback:
                        parameter.sharded.copy_(placed_with(parameter.sharded, whole.detach()))

    # --- state dicts ---

    @staticmethod
    def set_state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> StateDictSettings:
        """Set what the state dicts of the wrappers in `module` have; returns the settings before."""
        settings = _saving.settings_of(state_dict_type, state_dict_config, optim_state_dict_config)
        before = FullyShardedDataParallel.get_state_dict_type(module)
        for wrapper in FullyShardedDataParallel.fsdp_modules(module):
            wrapper._settings = replace(settings)
        return before

    @staticmethod
    def get_state_dict_type(module: Module) -> StateDictSettings:
        """What the state dicts of the wrappers in `module` have; `AssertionError` if they differ."""
        every = [wrapper._settings for wrapper in FullyShardedDataParallel.fsdp_modules(module)]
        for settings in every:
            if settings != every[0]:
                raise PreconditionError(
                    f"All FSDP modules must have the same state dict settings. Got {settings} and {every[0]}."
                )
        return every[0] if every else StateDictSettings()

    @staticmethod
    @contextmanager
    def state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> Generator[None]:
        """`set_state_dict_type` within the block."""
        before = FullyShardedDataParallel.set_state_dict_type(
            module, state_dict_type, state_dict_config, optim_state_dict_config
        )
        try:
            yield
        finally:
            for wrapper in FullyShardedDataParallel.fsdp_modules(module):
                wrapper._settings = before

    @staticmethod
    def optim_state_dict(
        model: Module, optim: Optimizer, optim_state_dict: SavedState | None = None, group: AnyGroup = None
    ) -> SavedState:
        """The state of an optimizer by the names of parameters, as the type of state dicts says. All ranks call it."""
        del group
        settings = FullyShardedDataParallel.get_state_dict_type(model)
        return _saving.named_state(_names(model), optim, optim_state_dict, settings)

    @staticmethod
    def optim_state_dict_to_load(
        model: Module,
        optim: Optimizer,
        optim_state_dict: SavedState,
        is_named_optimizer: bool = False,
        load_directly: bool = False,
        group: AnyGroup = None,
    ) -> SavedState:
        """What `optim.load_state_dict` takes, from what `optim_state_dict` has returned on any number of ranks."""
        del group
        state = _saving.numbered_state(_names(model), optim, optim_state_dict, is_named=is_named_optimizer)
        if load_directly:
            optim.load_state_dict(state)
        return state

    @staticmethod
    def rekey_optim_state_dict(
        optim_state_dict: SavedState,
        optim_state_key_type: OptimStateKeyType,
        model: Module,
        optim_input: object = None,
        optim: Optimizer | None = None,
    ) -> SavedState:
        """A full state of an optimizer with names in place of the parameters' numbers, or the reverse."""
        del optim_input
        return _saving.rekeyed(_names(model), optim, optim_state_dict, optim_state_key_type)


def _ranks(
    group: AnyGroup | tuple[ProcessGroup, ProcessGroup], mesh: DeviceMesh | None, strategy: object
) -> DataParallel:
    """The ranks that shard, and those that have copies. All ranks of the job must call it alike."""
    if not isinstance(strategy, ShardingStrategy):
        raise ValueRangeError(f"sharding_strategy must be a ShardingStrategy, but got {strategy!r}")
    if mesh is not None and group is not None:
        raise ValueRangeError(
            "Cannot pass both process_group and device_mesh at the same time. Please just pass only one of them."
        )
    if mesh is None and isinstance(group, tuple):
        shards, copies = group
        raise ValueRangeError(
            f"groups {shards} and {copies}: give the mesh of both as device_mesh=init_device_mesh(..., (copies, "
            'parts), mesh_dim_names=("replicate", "shard"))'
        )
    if strategy.is_hybrid:
        if mesh is None or mesh.ndim != 2:
            raise ValueRangeError(
                "Manual wrapping with ShardingStrategy.HYBRID_SHARD requires explicit specification of process group "
                "or device_mesh: pass a device_mesh of two dims, which has copies along the first"
            )
        return DataParallel(mesh)
    if mesh is None:
        process_group = require_group(group)
        mesh = DeviceMesh.from_group(process_group, "cpu")
    if strategy is not ShardingStrategy.NO_SHARD or mesh.ndim == 2:
        return DataParallel(mesh)
    # NO_SHARD is copies alone: a second mesh dim of size 1, along which nothing is split.
    return DataParallel(DeviceMesh("cpu", np.asarray(mesh.mesh._host()).reshape(-1, 1)))


def _require_module(module: object) -> None:
    if not isinstance(module, Module):
        raise ArgumentError(f"FullyShardedDataParallel takes a module, but got {type(module).__name__}")


def _entries(name: str, argument: object) -> list[object]:
    if argument is not None and not is_iterable(argument):
        raise ArgumentError(f"`{name}` should be an iterable of modules, but got {type(argument)}")
    return list(argument or ())


def _ignored(
    modules: Iterable[Module] | None, states: Iterable[Parameter] | Iterable[Module] | None
) -> tuple[set[Module], set[Parameter]]:
    """The modules, with those below them, and the parameters that stay as they are."""
    if modules is not None and states is not None:
        raise ValueRangeError(
            "Cannot pass both ignored_modules and ignored_states at the same time. Please just pass ignored_states."
        )
    name, argument = ("ignored_modules", modules) if states is None else ("ignored_states", states)
    entries = _entries(name, argument)
    kinds = (Module,) if states is None else (Module, Parameter)
    if not any(all(isinstance(one, kind) for one in entries) for kind in kinds):
        types = sorted({type(one) for one in entries}, key=repr)
        wanted = " or all ".join(f"nn.{kind.__name__}" for kind in kinds)
        raise ValueRangeError(f"{name} expects all {wanted} list elements but got types {types}")
    if any(state_of(one) is not None for one in entries if isinstance(one, Module)):
        raise ValueRangeError(f"`{name}` should not include FSDP modules")
    ignored = {inner for one in entries if isinstance(one, Module) for inner in one.modules()}
    parameters = {parameter for module in ignored for parameter in module.parameters(recurse=False)}
    return ignored, parameters | {one for one in entries if isinstance(one, Parameter)}


def _synchronise(module: Module, ranks: DataParallel) -> None:
    """Start from the first rank's parameters and buffers."""
    plain = [x for x in (*module.parameters(), *module.buffers()) if not isinstance(x, DTensor)]
    for group in ranks.mesh.get_all_groups():
        broadcast_coalesced(plain, 0, group, record=False)


def _cast_buffers(module: Module, dtype: DType) -> None:
    for buffer in module.buffers():
        if buffer.is_floating_point():
            buffer.data = buffer.to(dtype)


def _states(module: Module) -> list[ShardState]:
    return list(dict.fromkeys(state for m in module.modules() if (state := state_of(m)) is not None))


def _whole(parameter: Parameter, with_grads: bool) -> Parameter:
    """A plain leaf with all elements of a parameter."""
    with using(grad=False):
        source: Result = parameter  # a distributed tensor
        whole = Parameter(source.full_tensor().clone(), parameter.requires_grad)
        if with_grads and source.grad is not None:
            whole.grad = source.grad.full_tensor()
        return whole


def _names(model: Module) -> dict[str, Parameter]:
    for state in _states(model):
        state.reshard()
    return {FullyShardedDataParallel.outer(name): parameter for name, parameter in model.named_parameters()}
