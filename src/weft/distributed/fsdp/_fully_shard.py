"""Fully sharded data parallelism: parameters, gradients and the optimizer's state are divided among the ranks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import TYPE_CHECKING, NoReturn, Self, TypeVar

from weft._base.guards import is_int, is_list_or_tuple_of
from weft._base.types import Arg, Result
from weft._base.usage import log_api_usage_once
from weft._tensor.kind_names import advice
from weft._tensor.tensor import Tensor
from weft.distributed._world import get_world_size, init_process_group, is_initialized
from weft.distributed.device_mesh import DeviceMesh, init_device_mesh
from weft.distributed.fsdp._data_parallel import DataParallel, require_mesh, require_reshard
from weft.distributed.fsdp._group import ParameterGroup
from weft.distributed.fsdp._parameter import PlacementFunction
from weft.distributed.fsdp._policies import AllGather, MixedPrecisionPolicy, OffloadPolicy, ReduceScatter
from weft.distributed.fsdp._shard import shard
from weft.distributed.fsdp._state import ShardState, require_state, state_of
from weft.errors import ArgumentError, PreconditionError, ValueRangeError
from weft.nn import Module, ModuleDict, ModuleList, Parameter

M = TypeVar("M", bound=Module | Sequence[Module])

# What is mixed into classes of modules is a module to type checkers.
if TYPE_CHECKING:
    _Mixed = Module
else:
    _Mixed = object


def fully_shard(
    module: M,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: PlacementFunction | None = None,
    mp_policy: MixedPrecisionPolicy = MixedPrecisionPolicy(),  # noqa: B008  it is frozen
    offload_policy: OffloadPolicy = OffloadPolicy(),  # noqa: B008  it is not changed
    ignored_params: set[Parameter] | None = None,
) -> M:
    """Divide a module's parameters among the ranks of `mesh`, in place; returns the module, now an `FSDPModule`.

    A parameter becomes a distributed tensor that is split along its first dim, or that which `shard_placement_fn`
    returns. One call makes one group, of all parameters below `module` that no earlier call has taken: so submodules
    are sharded first. A group is gathered by one collective before the module's forward pass, and its gradients are
    averaged by one reduce-scatter. Make optimizers afterwards.

    mesh                   one dim, over which parameters are split; or two with names: the first has copies (HSDP). By
                           default all ranks. Parameters that are distributed over another dim of the same mesh, for
                           tensor parallelism, are split further
    reshard_after_forward  whether whole parameters are released after forward passes, and gathered again if the
                           backward pass reads them. A number gathers them among so many neighbouring ranks then. None
                           means yes, except for the outermost module
    mp_policy              types to compute and to reduce in
    offload_policy         accepted; on the CPU there is nothing to offload
    ignored_params         stay as they are

    A list of modules makes one group of them. `ValueError` for containers without `forward` and for meshes of more
    dims; `AssertionError` for a module that was sharded before.
    """
    log_api_usage_once("torch.distributed.fsdp.fully_shard")
    modules = _required_modules(module)
    if mesh is None:
        mesh = _default_mesh(modules)
    require_mesh(mesh)
    ranks = DataParallel(mesh)
    reshards = None if reshard_after_forward is None else require_reshard(reshard_after_forward, ranks.parts)
    del offload_policy
    shard(modules, ranks, mp_policy, reshards, placement=shard_placement_fn, ignored=ignored_params or ())
    for one in modules:
        one.__class__ = _sharded_class(type(one))
    return module


def _required_modules(module: object) -> list[Module]:
    """The modules of a call, without those that are below others of them."""
    modules = [module] if isinstance(module, Module) else module
    if not is_list_or_tuple_of(modules, Module) or not modules:
        raise ArgumentError(f"fully_shard takes a module, or a list of modules, but got {module!r}{advice(module)}")
    below = {inner for one in modules for inner in one.modules() if inner is not one}
    roots = [one for one in dict.fromkeys(modules) if one not in below]
    for one in roots:
        if isinstance(one, (ModuleList, ModuleDict)) and type(one).forward is Module.forward:
            raise ValueRangeError(f"fully_shard does not support containers that do not implement forward: {one}")
        if state_of(one) is not None:
            raise PreconditionError(
                "Each distinct composable distributed API can only be applied to a module once. fully_shard has "
                f"already been applied to the following module:\n{one}"
            )
    return roots


def _default_mesh(modules: Sequence[Module]) -> DeviceMesh:
    if not is_initialized():
        init_process_group()
    device = next((parameter.device.type for module in modules for parameter in module.parameters()), "cpu")
    return init_device_mesh(device, (get_world_size(),))


@cache
def _sharded_class(kind: type[Module]) -> type[Module]:
    return type(
        f"FSDP{kind.__name__}", (FSDPModule, kind), {"__deepcopy__": _no_deepcopy, "__module__": kind.__module__}
    )


def _no_deepcopy(self: object, memo: object) -> NoReturn:
    raise PreconditionError("FSDP does not support deepcopy. Please use state dict for serialization.")


class UnshardHandle:
    """What waits for `FSDPModule.unshard(async_op=True)`."""

    def wait(self) -> None:
        """Block until the module has its whole parameters."""


class _GroupsHandle(UnshardHandle):
    def __init__(self, groups: Sequence[ParameterGroup]) -> None:
        self._groups = list(groups)

    def wait(self) -> None:
        while self._groups:
            self._groups.pop(0).unshard()


class FSDPModule(_Mixed):
    """What `fully_shard` adds to a module. All ranks must call these methods alike."""

    def __new__(cls, *args: Arg, **kwargs: Arg) -> Result:
        """A module of the original class, as where a container makes another one of its own class."""
        kind: Result = cls.__mro__[2]
        result: Result = kind.__new__(kind, *args, **kwargs)
        result.__init__(*args, **kwargs)
        return result

    # --- gathering ---

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gather the module's own group; with `async_op`, returns at once a handle to wait for."""
        groups = self.get_fsdp_state().groups
        for group in groups:
            group.begin(async_op=async_op)
        handle = _GroupsHandle(groups)
        if async_op:
            return handle
        handle.wait()
        return None

    def reshard(self) -> None:
        """Release the whole parameters of the module's own group."""
        self.get_fsdp_state().reshard()

    def reset_iter_state(self) -> None:
        """After an error in a forward or backward pass: forget its gradients. To be called of the outermost module."""
        self.get_fsdp_state().reset()

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Set whether whole parameters are released after forward passes."""
        _require_bool(reshard_after_forward)
        for state in self._states(recurse):
            state.keeps_as_root = False
            for group in state.groups:
                group.reshards_after_forward = reshard_after_forward

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """Set whether they are released after backward passes. While gradients accumulate, they may stay."""
        for group in self._groups(recurse):
            group.reshards_after_backward = reshard_after_backward

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Accepted: a backward pass gathers a group only if it reads one of its parameters."""
        self.get_fsdp_state()

    def set_modules_to_forward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Start to gather these modules when this one begins its forward pass."""
        self.get_fsdp_state().forward_prefetch = _states_of(modules)

    def set_modules_to_backward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Start to gather these when this one is gathered in a backward pass; by default the one that ran before it."""
        self.get_fsdp_state().backward_prefetch = _states_of(modules)

    # --- reducing ---

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Set whether backward passes reduce gradients, or accumulate whole ones, without communication."""
        for group in self._groups(recurse):
            group.reduces = group.reduction.all_reduces = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Set whether the copies of HSDP exchange gradients, or accumulate those that are reduced within each copy."""
        for group in self._groups(recurse):
            group.reduction.all_reduces = requires_all_reduce

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Set whether parameters that the next backward pass does not reach are resharded at its end."""
        self.get_fsdp_state().iteration.is_last_backward = is_last_backward

    def set_gradient_divide_factor(self, factor: float) -> None:
        """Divide sums of gradients by this, instead of the number of ranks."""
        for group in self._groups(False):
            group.reduction.divisor = factor

    def set_reduce_scatter_divide_factor(self, factor: float) -> None:
        """The deprecated name of `set_gradient_divide_factor`."""
        warnings.warn("Use `set_gradient_divide_factor` instead", FutureWarning, stacklevel=2)
        self.set_gradient_divide_factor(factor)

    def set_reduce_scatter_unused_params(self, reduce_scatter_unused_params: bool, *, recurse: bool = True) -> None:
        """Set whether parameters without a gradient take part with zeros, for ranks that use different ones."""
        for group in self._groups(recurse):
            group.reduces_unused = reduce_scatter_unused_params

    def set_all_reduce_hook(self, hook: Callable[[Tensor], None], *, stream: object = None) -> None:
        """Call `hook(buffer)` with the reduced gradients of the group, which it may change in place."""
        del stream
        for group in self._groups(False):
            group.reduction.hook = hook

    def set_custom_all_gather(self, comm: AllGather) -> None:
        """Gather by `comm`."""
        for group in self._groups(False):
            group.gather_comm = comm

    def set_custom_reduce_scatter(self, comm: ReduceScatter) -> None:
        """Reduce by `comm`."""
        for group in self._groups(False):
            group.reduction.comm = comm

    # --- accepted: they tune memory and streams of accelerators, which XLA manages ---

    def set_post_optim_event(self, event: object) -> None:
        """Accepted: what is gathered depends on the optimizer's step, so nothing else needs to wait for it."""
        self.get_fsdp_state()

    def set_force_sum_reduction_for_comms(self, enable: bool) -> None:
        """Accepted: gradients are always summed, and then divided."""
        self.get_fsdp_state()

    def set_reduce_scatter_max_input_buffers(self, max_input_buffers: object, *, recurse: bool = True) -> None:
        """Accepted, if it is a positive number: a buffer is sent before the next one is filled."""
        del recurse
        if not is_int(max_input_buffers):
            raise ArgumentError(f"max_input_buffers must be an int, got {type(max_input_buffers).__name__}")
        if max_input_buffers < 1:
            raise ValueRangeError(f"max_input_buffers must be a positive int, got {max_input_buffers}")

    def set_separate_reduce_scatter_group(self, enable: bool = True, *, recurse: bool = True) -> None:
        """Accepted: a group's collectives run in the order in which they are called."""
        self.get_fsdp_state()

    def set_allocate_memory_from_process_group_for_comm(self, enable: bool) -> None:
        """Accepted: the backend finds memory for buffers itself."""
        self.get_fsdp_state()

    def set_symm_mem_for_comm(self, backend: str = "NCCL") -> None:
        """Accepted: the backend finds memory for buffers itself."""
        self.get_fsdp_state()

    # ---

    def get_fsdp_state(self) -> ShardState:
        """The sharding of the module."""
        return require_state(self)

    _get_fsdp_state = get_fsdp_state

    def _states(self, recurse: bool) -> list[ShardState]:
        modules = self.modules() if recurse else [self]
        return list(dict.fromkeys(state for module in modules if (state := state_of(module)) is not None))

    def _groups(self, recurse: bool) -> list[ParameterGroup]:
        return [group for state in self._states(recurse) for group in state.groups]

    def _apply(self, *args: Arg, **kwargs: Arg) -> Self:
        self.reshard()
        return super()._apply(*args, **kwargs)


def _states_of(modules: Sequence[object]) -> list[ShardState]:
    states: list[ShardState] = []
    for module in modules:
        if not isinstance(module, FSDPModule):
            raise ValueRangeError(f"Expects FSDPModule but got {type(module)}: {module}")
        states.append(module.get_fsdp_state())
    return states


def _require_bool(reshard_after_forward: object) -> None:
    if not isinstance(reshard_after_forward, bool):
        raise ValueRangeError(f"reshard_after_forward should be a bool, got {type(reshard_after_forward)}")


def register_fsdp_forward_method(module: Module, method_name: str) -> None:
    """Let another method of a module gather its parameters as `forward` does; nothing for other modules."""
    if not isinstance(module, FSDPModule):
        return
    if not hasattr(module, method_name):
        raise ValueRangeError(f"{type(module)} does not have a method {method_name}")
    method, state = getattr(module, method_name), module.get_fsdp_state()

    @wraps(method)
    def gathered(*args: Arg, **kwargs: Arg) -> Result:
        args, kwargs = state.before_forward(module, args, kwargs)
        try:
            result = method(*args, **kwargs)
        except BaseException:
            state.after_forward(module, args, None)
            raise
        return state.after_forward(module, args, result)

    setattr(module, method_name, gathered)


def share_comm_ctx(modules: list[FSDPModule]) -> None:
    """Accepted: modules of several pipeline stages share no streams here. `ValueError` for other modules."""
    _states_of(modules)
