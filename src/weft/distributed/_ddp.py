"""Data-parallel training: replicas of a module in all processes, with gradients averaged in each backward pass."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial

import jax

from weft._base.capture import active_capture
from weft._base.device import DeviceLike, device
from weft._base.state import ambient
from weft._base.types import AnyCallable, Arg, Args, Kwargs, PyTree, Result, SavedState
from weft._base.usage import log_api_usage_once
from weft._tensor.convert import tensor
from weft._tensor.tensor import Tensor
from weft.distributed import _collectives
from weft.distributed._broadcast_coalesced import broadcast_coalesced
from weft.distributed._ddp_log import logging_data
from weft.distributed._ddp_options import bucket_limits, group_of, require_module, require_options
from weft.distributed._grad_bucket import GradBucket, Hook
from weft.distributed._group import ProcessGroup
from weft.distributed._objects import all_gather_object
from weft.distributed._reduce_op import ReduceOp
from weft.distributed._reducer import Reducer
from weft.distributed._structures import moved
from weft.distributed._unused import hint_at_join
from weft.distributed._world import AnyGroup, is_default, is_initialized, require_default
from weft.distributed.algorithms.ddp_comm_hooks._builtin import BuiltinCommHookType, hook_of_type
from weft.distributed.algorithms.join import Join, Joinable, JoinHook
from weft.distributed.device_mesh import DeviceMesh
from weft.errors import ArgumentError, DistBackendError, OptionError, ValueRangeError
from weft.futures import Future
from weft.nn import Module
from weft.nn._optimized import OptimizedModule
from weft.nn._parameter import Parameter

_OUTSIDE = (
    "the ranks that a DistributedDataParallel averages over (compile the module that it wraps, "
    "DistributedDataParallel(weft.compile(module)), and not what calls it)"
)


class DistributedDataParallel(Module, Joinable):
    """A replica of `module` that starts from rank 0's parameters and buffers, and averages gradients with the others.

    Gradients are exchanged in buckets of `bucket_cap_mb` MB (by default 25; the first bucket has one), or of the sizes
    in `bucket_cap_mb_list`. A bucket is exchanged once it is ready, while the backward pass continues. All ranks must
    have parameters of equal names, sizes and types; `RuntimeError` names the first that differs.

    find_unused_parameters
        For models whose loss does not depend on all parameters.
    static_graph
        For models whose loss depends on the same parameters in every step, which the first step finds.
    gradient_as_bucket_view
        With a communication hook, gradients share memory with their bucket, and cannot be read during a backward pass.
    forward_sync_buffers
        Whether buffers are copied from rank 0 before forward passes. `broadcast_buffers`, the older name, also holds
        for the start.

    `module` may be compiled. Delayed reduction, mixed precision and meshes are refused.

    A function under `weft.compile` may contain a whole step: averages are operators of its program with the backend
    `xla` and all processes of the job, and else calls between programs. A communication hook, `find_unused_parameters`,
    `join` and the first step of a static graph need values during the backward pass, which no captured function has.
    """

    _read_by_calls = (*Module._read_by_calls, "require_backward_grad_sync", "forward_sync_buffers", "device_ids")

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[DeviceLike] | None = None,
        output_device: DeviceLike | None = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: AnyGroup = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: object = None,
        param_to_hook_all_reduce: object = None,
        mixed_precision: object = None,
        device_mesh: DeviceMesh | None = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: list[float] | None = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        log_api_usage_once("torch.distributed.ddp.reducer")
        super().__init__()
        Joinable.__init__(self)
        del skip_all_reduce_unused_params, batched_grad_copy  # optimizations of PyTorch's that are not needed here
        require_options(
            mixed_precision,
            delay_all_reduce_named_params,
            param_to_hook_all_reduce,
            check_reduction,
            broadcast_buffers,
            forward_sync_buffers,
        )
        self._bucket_limits = bucket_limits(bucket_cap_mb, bucket_cap_mb_list)
        self.compiled_module: AnyCallable | None = None
        self.parameters_to_ignore: set[str] = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        trained = require_module(module, self.parameters_to_ignore, device_ids, output_device)
        self.module, self.dim, self.device = module, dim, trained[0][1].device
        self.device_ids, self.output_device = device_ids or None, output_device
        formerly = broadcast_buffers is not False
        self.forward_sync_buffers = formerly if forward_sync_buffers is None else forward_sync_buffers
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.static_graph = False
        self.require_backward_grad_sync = True
        self.require_forward_param_sync = True
        self.process_group: ProcessGroup = group_of(process_group, device_mesh)
        if device_mesh is not None:
            self.device_mesh = device_mesh
        self._divide_by_initial_world_size = True
        if init_sync:
            self._verify(trained)
            self._broadcast(self._states(forward_sync_buffers is not None or formerly), 0)
        self.reducer = self._new_reducer(trained)
        if static_graph:
            self._set_static_graph()

    def _new_reducer(self, trained: list[tuple[str, Parameter]]) -> Reducer:
        return Reducer(
            [p for _, p in trained],
            [name for name, _ in trained],
            self.process_group,
            self._bucket_limits,
            find_unused=self.find_unused_parameters,
            in_buckets=self.gradient_as_bucket_view,
        )

    @property
    def broadcast_buffers(self) -> bool:
        """The older name of `forward_sync_buffers`."""
        return self.forward_sync_buffers

    def _set_static_graph(self) -> None:
        """Set `static_graph=True`; `RuntimeError` after the first forward pass."""
        if self.static_graph:
            warnings.warn("You've set static_graph to be True, no need to set it again.", stacklevel=2)
            return
        if self.find_unused_parameters:
            warnings.warn(
                "You passed find_unused_parameters=true to DistributedDataParallel, `_set_static_graph` will detect "
                "unused parameters automatically, so you do not need to set find_unused_parameters=true, just be sure "
                "these unused parameters will not change during training loop while calling `_set_static_graph`.",
                stacklevel=2,
            )
        self.reducer.become_static()
        self.static_graph = True

    def _get_ddp_logging_data(self) -> dict[str, object]:
        """Statistics of this replica and its passes, for logs."""
        return logging_data(self)

    def _set_ddp_runtime_logging_sample_rate(self, sample_rate: int) -> None:
        """Accepted for compatibility: all passes are counted, which costs nothing."""
        if sample_rate < 1:
            raise ValueRangeError("DDP runtime logging sample rate should be equal or greater than 1")

    # --- equality of replicas ---------------------------------------------------------------------------------

    def _buffers_sent(self) -> list[Tensor]:
        return [buffer for name, buffer in self.module.named_buffers() if name not in self.parameters_to_ignore]

    def _states(self, with_buffers: bool) -> list[Tensor]:
        named = self.module.named_parameters()
        states = [parameter for name, parameter in named if name not in self.parameters_to_ignore]
        return states + (self._buffers_sent() if with_buffers else [])

    def _verify(self, trained: list[tuple[str, Parameter]]) -> None:
        """Raise unless all ranks have the same parameters."""
        mine = [(name, tuple(p.shape), str(p.dtype)) for name, p in trained]
        parameters_of_ranks: list[list[tuple[str, tuple[int, ...], str]]] = [[]] * self.process_group.size()
        all_gather_object(parameters_of_ranks, mine, self.process_group)
        for rank, theirs in enumerate(parameters_of_ranks):
            for own, other in zip(mine, theirs, strict=False):
                if own != other:
                    raise OptionError(
                        f"DDP expects the same model across all ranks, but rank {self.process_group.rank()} has the "
                        f"parameter {_described(own)} where rank {rank} has {_described(other)}"
                    )
            if len(mine) != len(theirs):
                raise OptionError(
                    f"DDP expects the same model across all ranks, but Rank {self.process_group.rank()} has "
                    f"{len(mine)} params, while rank {rank} has inconsistent {len(theirs)} params."
                )

    def _broadcast(self, tensors: list[Tensor], source: int) -> None:
        """Copy the tensors of one rank to all ranks."""
        try:
            broadcast_coalesced(tensors, source, self.process_group, record=self._captured())
        except DistBackendError as error:
            hint_at_join(error)
            raise

    # --- forward passes ---------------------------------------------------------------------------------------

    def forward(self, *inputs: Arg, **kwargs: Arg) -> Result:
        """The module's results. Buffers are synchronised first."""
        inputs, kwargs = self.before_forward(inputs, kwargs)
        return self.after_forward((self.compiled_module or self.module)(*inputs, **kwargs))

    def before_forward(self, inputs: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """What comes before a forward pass; returns the arguments, on the module's device."""
        self.reducer.uneven = self._join_config.enable
        capture = active_capture()
        # What replays cannot repeat runs outside of the capture, and the error says how to compile instead.
        if not self.reducer.is_captured:
            capture.needs_value(_OUTSIDE)
        capture.depends(self, "whether a DistributedDataParallel sends buffers", self._what_a_capture_depends_on)
        self.reducer.require_unchanged()
        Join.notify_join_context(self)
        if self._join_config.enable:
            # With uneven inputs rank 0 may have no data left, and its buffers are then those of an old step.
            self.reducer.leader, _ = self._reduce_flags(has_data=True)
        self._send_buffers()
        if self.device_ids:
            return moved(inputs, self.device), moved(kwargs, self.device)
        return inputs, kwargs

    def after_forward(self, outputs: PyTree) -> PyTree:
        """What follows a forward pass, whose outputs tell the order in which gradients will be ready."""
        syncs = ambient().grad and self.require_backward_grad_sync
        if ambient().grad:
            self.reducer.expect(sync=syncs)
        if syncs:
            # After the forward pass, whose tape shows in which order gradients will come.
            self.reducer.agree_on_order([x._read() for x in jax.tree.leaves(outputs) if isinstance(x, Tensor)])
        self._follow(syncs)
        active_capture().repeats(partial(self._follow, syncs))
        return outputs

    _pre_forward, _post_forward = before_forward, after_forward  # PyTorch's names

    def _what_a_capture_depends_on(self) -> tuple[bool, ...]:
        return self.require_forward_param_sync, self.reducer.needs_no_value, self._join_config.enable

    def _follow(self, syncs: bool) -> None:
        """Remember whether the last forward pass was for an averaging step."""
        self.require_forward_param_sync = syncs

    def _captured(self) -> bool:
        """Whether exchanges must be operators.

        Otherwise buffers are sent at once, so that it does not matter on which ranks a value is read before the
        backward pass.
        """
        return ambient().capture is not None and self.reducer.records

    def will_sync_module_buffers(self) -> bool:
        """Whether the next forward pass synchronises buffers, as it does if the last one was for an averaging step."""
        return self.require_forward_param_sync and self.forward_sync_buffers

    def _send_buffers(self) -> None:
        if self.will_sync_module_buffers():
            self._broadcast(self._buffers_sent(), self.reducer.leader)

    @contextmanager
    def no_sync(self) -> Generator[None]:
        """Do not average gradients of passes within the block; the next pass after it averages their sums."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def compile(self, *args: Arg, **kwargs: Arg) -> None:
        """Compile the calls of the wrapped module in place; the collectives are not compiled."""
        self.module.compile(*args, **kwargs)

    def compiled_by(self, compile: Callable[[Module], AnyCallable]) -> Module:
        """The result of `weft.compile` for a replica."""
        return OptimizedModule(self, _CompiledReplica(self, compile(self.module)))

    # --- uneven inputs ----------------------------------------------------------------------------------------

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """A context around the training loop, for ranks with different numbers of inputs.

        Ranks without data take part in the others' collectives with zeros. Gradients are divided by the number of all
        ranks, or of those with data if not `divide_by_initial_world_size`. In the end all ranks have the model of a
        rank that had data until then. With `throw_on_early_termination`, all ranks raise `RuntimeError` as soon as one
        has no data left; use it for models with collectives of their own, in which ranks without data cannot take part.
        """
        return Join(
            [self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size
        )

    def join_hook(self, **kwargs: Arg) -> JoinHook:
        """The actions of this rank when it has no data left; `divide_by_initial_world_size` is as for `join`."""
        self._divide_by_initial_world_size = kwargs.get("divide_by_initial_world_size", True)
        self.reducer.divisor = None
        return _ReplicaJoinHook(self)

    @property
    def join_device(self) -> device:
        """The device of the parameters."""
        return self.device

    @property
    def join_process_group(self) -> ProcessGroup:
        """The group over which gradients are averaged."""
        return self.process_group

    def _reduce_flags(self, *, has_data: bool) -> tuple[int, bool]:
        """The highest rank with data, and whether gradients are averaged in this iteration.

        It also sets the divisor of gradients.
        """
        # One exchange tells who has data and whether those average: ranks without data cannot see `no_sync` of the
        # others.
        flags = [0] * self.process_group.size() + [int(has_data and self.require_backward_grad_sync)]
        flags[self.process_group.rank()] = int(has_data)
        reduced = tensor(flags, device=self.device)
        _collectives.all_reduce(reduced, ReduceOp.SUM, self.process_group)
        *with_data, syncs = reduced.tolist()
        self.reducer.divisor = None if self._divide_by_initial_world_size else sum(with_data)
        return max(rank for rank, has in enumerate(with_data) if has), bool(syncs)

    def shadow_iteration(self) -> None:
        reducer = self.reducer
        reducer.uneven = True
        reducer.leader, syncs = self._reduce_flags(has_data=False)
        self._send_buffers()
        self.require_forward_param_sync = syncs
        if syncs:
            reducer.shadow()

    def take_final_model(self, is_last_joiner: bool) -> None:
        leader, _ = self._reduce_flags(has_data=is_last_joiner)
        self._broadcast(self._states(self.forward_sync_buffers), leader)
        self.reducer.leader, self.reducer.divisor = 0, None
        self._divide_by_initial_world_size = True

    # --- communication hooks ----------------------------------------------------------------------------------

    def register_comm_hook(self, state: Arg, hook: Hook) -> None:
        """Call `hook(state, bucket)` instead of averaging; it returns a future of the bucket's gradients, flat."""
        _require_hook(hook)
        if self.reducer.hook is not None:
            raise OptionError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        self.reducer.hook, self.reducer.hook_state = hook, state

    def _register_builtin_comm_hook(self, comm_hook_type: BuiltinCommHookType) -> None:
        """Register one of the built-in hooks, with the group of this replica as its state."""
        self.register_comm_hook(self.process_group, hook_of_type(comm_hook_type))

    # --- copies and files -------------------------------------------------------------------------------------

    def __getstate__(self) -> SavedState:
        """All but what belongs to this job. A copy is a replica of its own, in the default group, without a hook."""
        # As in PyTorch: a copy finds the default group again, any other one is not known where it is loaded.
        if not (is_initialized() and is_default(self.process_group)):
            raise OptionError(
                "DDP Pickling/Unpickling are only supported when using DDP with the default process group. That is, "
                "when you have called init_process_group and have not passed process_group argument to DDP constructor"
            )
        left_out = {"process_group", "reducer", "compiled_module"}
        return {name: value for name, value in super().__getstate__().items() if name not in left_out}

    def __setstate__(self, state: SavedState) -> None:
        super().__setstate__(state)
        self.process_group, self.compiled_module = require_default(), None
        named = self.module.named_parameters()
        self.reducer = self._new_reducer(
            [(name, p) for name, p in named if p.requires_grad and name not in self.parameters_to_ignore]
        )
        if self.static_graph:
            self.reducer.become_static()


class _ReplicaJoinHook(JoinHook):
    """Takes part in the collectives of a replica on a rank without data."""

    def __init__(self, replica: DistributedDataParallel) -> None:
        self._replica = replica

    def main_hook(self) -> None:
        self._replica.shadow_iteration()

    def post_hook(self, is_last_joiner: bool) -> None:
        self._replica.take_final_model(is_last_joiner)


class _CompiledReplica:
    """The call of a replica whose module is compiled."""

    def __init__(self, replica: DistributedDataParallel, module: AnyCallable) -> None:
        self._replica = replica
        self._module = module

    def __call__(self, *args: Arg, **kwargs: Arg) -> Result:
        replica = self._replica
        before, replica.compiled_module = replica.compiled_module, self._module
        try:
            return replica(*args, **kwargs)
        finally:
            replica.compiled_module = before


def _require_hook(hook: object) -> None:
    """Raise unless `hook` is callable and its annotations, if it has any, are right."""
    if not callable(hook):
        raise ArgumentError("Communication hook must be callable.")
    signature = inspect.signature(hook)
    bucket = signature.parameters.get("bucket")
    if bucket is not None and _is_other(bucket.annotation, GradBucket):
        raise ValueRangeError("Communication hook: bucket annotation should be dist.GradBucket.")
    if _is_other(signature.return_annotation, Future[Tensor]):
        raise ValueRangeError("Communication hook: return annotation should be torch.futures.Future[torch.Tensor].")


def _is_other(annotation: object, expected: object) -> bool:
    """Whether the annotation is another type. Strings, as by `from __future__ import annotations`, are accepted."""
    return annotation is not inspect.Parameter.empty and not isinstance(annotation, str) and annotation != expected


def _described(parameter: tuple[str, tuple[int, ...], str]) -> str:
    name, shape, dtype = parameter
    return f"{name} of shape {list(shape)} and type {dtype}"
