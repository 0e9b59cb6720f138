"""Replicas without a wrapper: the module keeps its class, its names and its identity."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NoReturn

from weft._base.device import device as Device
from weft._base.types import Arg, Args, Kwargs, PyTree
from weft._base.usage import log_api_usage_once
from weft.distributed._ddp import DistributedDataParallel
from weft.distributed.fsdp import FSDPModule
from weft.errors import DistError, PreconditionError
from weft.nn import Module
from weft.nn._parameter import Parameter

_STATE = "_replicate_state"


def replicate(module: Module, ignored_modules: Iterable[Module] | None = None, **kwargs: Arg) -> Module:
    """Average the gradients of a module's parameters over all ranks, in place; returns the module.

    The module gets the methods of `DDP`, and its class a name that begins with it. Parameters of `ignored_modules`, and
    those that `fully_shard` has divided, are left out. Parameters are compared, and copied from rank 0, in the first
    forward pass; buffers are not synchronised. Other arguments are those of `DistributedDataParallel`; `device_mesh`
    stands for the group of its first dim.

    `AssertionError` if the module is replicated already, `RuntimeError` if it is sharded.
    """
    log_api_usage_once("torch.distributed.replicate")
    device_id = kwargs.pop("device_id", None)
    if device_id is not None and not isinstance(device_id, (int, Device)):
        raise DistError(f"Expected device_id to be int or torch.device, but got {type(device_id)}")
    if isinstance(module, FSDPModule):
        raise DistError("Cannot apply `replicate()` on a Module already managed by `fully_shard`")
    if isinstance(module, DDP):
        raise PreconditionError(
            "Each distinct composable distributed API can only be applied to a module once. replicate has already been "
            f"applied to the following module:\n{module}"
        )
    if device_id is not None and Device(device_id).type != "cpu":
        kwargs["device_ids"] = [device_id]
    mesh = kwargs.pop("device_mesh", None)
    if mesh is not None:
        kwargs["process_group"] = mesh.get_group(0)
    # The hooks refer to the state, and the state to the parameters alone: a module that nobody needs any more goes at
    # once. The replica itself is made in the first pass, since parameters may still be on the meta device here.
    state = _State(dict(_replicated(module, set(ignored_modules or ()))), kwargs)
    setattr(module, _STATE, state)
    module.register_forward_pre_hook(state.before, with_kwargs=True)
    module.register_forward_hook(state.after)
    module.__class__ = _class_of(type(module))
    return module


class DDP:
    """What `replicate` adds to a module."""

    __new__ = FSDPModule.__new__  # a container that makes another one of its own class gets one of the original class

    def set_requires_gradient_sync(self, requires_gradient_sync: bool) -> None:
        """Whether further passes average gradients; those of passes that do not add up until one does."""
        getattr(self, _STATE).syncs = requires_gradient_sync

    def register_comm_hook(self, *args: Arg, **kwargs: Arg) -> None:
        """`DistributedDataParallel.register_comm_hook`, from the next forward pass on."""
        getattr(self, _STATE).hooks.append((args, kwargs))


class _Parameters(Module):
    """Parameters under their names in a model, which may have dots."""

    def __init__(self, parameters: dict[str, Parameter]) -> None:
        super().__init__()
        self._parameters.update(parameters)


class _State:
    """The averaging of one module's gradients. It does not refer to the module, which refers to it.

    syncs   whether passes average gradients
    hooks   arguments of `register_comm_hook` that the replica has not got yet
    """

    def __init__(self, parameters: dict[str, Parameter], options: Kwargs) -> None:
        self._parameters = parameters
        self._options = options
        self._replica: DistributedDataParallel | None = None
        self.syncs = True
        self.hooks: list[tuple[Args, Kwargs]] = []

    @property
    def replica(self) -> DistributedDataParallel:
        """The replica of the parameters, which the first forward pass makes."""
        if self._replica is None:
            self._replica = DistributedDataParallel(_Parameters(self._parameters), **self._options)
        return self._replica

    def before(self, module: Module, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        del module
        while self.hooks:
            hook_args, hook_kwargs = self.hooks.pop(0)
            self.replica.register_comm_hook(*hook_args, **hook_kwargs)
        self.replica.require_backward_grad_sync = self.syncs
        return self.replica.before_forward(args, kwargs)

    def after(self, module: Module, args: Args, outputs: PyTree) -> PyTree:
        del module, args
        return self.replica.after_forward(outputs)


def _replicated(module: Module, ignored: set[Module], prefix: str = "") -> Iterable[tuple[str, Parameter]]:
    """The names and the parameters below a module that are replicated."""
    if module in ignored or isinstance(module, FSDPModule):
        return
    for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
        yield f"{prefix}{name}", parameter
    for name, child in module.named_children():
        yield from _replicated(child, ignored, f"{prefix}{name}.")


@cache
def _class_of(kind: type[Module]) -> type[Module]:
    return type(f"DDP{kind.__name__}", (DDP, kind), {"__deepcopy__": _no_deepcopy, "__module__": kind.__module__})


def _no_deepcopy(self: object, memo: object) -> NoReturn:
    raise PreconditionError("DDP does not support deepcopy. Please use state dict for serialization.")
