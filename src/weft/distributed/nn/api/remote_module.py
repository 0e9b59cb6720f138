"""A module on another worker, used like a local one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, NoReturn

from weft._base.types import AnyCallable, Arg, Args, Kwargs, Result
from weft._base.usage import log_api_usage_once
from weft.distributed._structures import moved
from weft.distributed.remote_device import RemoteDevice
from weft.distributed.rpc._rref import RRef, remote
from weft.distributed.rpc._state import current_agent
from weft.distributed.rpc._workers import WorkerInfo
from weft.distributed.rpc.api import rpc_async, rpc_sync
from weft.errors import ArgumentError, RpcError, ValueRangeError
from weft.futures import Future
from weft.nn import Module

_NOT_HERE = (
    "register_buffer",
    "register_parameter",
    "add_module",
    "register_module",
    "apply",
    "cuda",
    "ipu",
    "xpu",
    "cpu",
    "type",
    "float",
    "double",
    "half",
    "bfloat16",
    "to",
    "to_empty",
    "register_forward_pre_hook",
    "register_forward_hook",
    "register_full_backward_hook",
    "register_backward_hook",
    "register_full_backward_pre_hook",
    "state_dict",
    "load_state_dict",
    "parameters",
    "named_parameters",
    "buffers",
    "named_buffers",
    "extra_repr",
    "requires_grad_",
    "zero_grad",
    "share_memory",
    "get_parameter",
    "get_buffer",
    "get_submodule",
)
"""Methods that need the module's tensors and submodules in this process."""


class _ForwardSignature(NamedTuple):
    """The name of a module's class, and the signature of its `forward` without `self`."""

    module: str
    signature: inspect.Signature

    def require(self, caller: str, args: Arg, kwargs: Arg) -> None:
        """`TypeError` for arguments that do not fit."""
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"{caller}: {self.module}.forward{self.signature}: {error}") from None


class RemoteModule(Module):
    """Creates `module_cls(*args, **kwargs)` on a worker, and runs its `forward` there.

    `remote_device` is `WORKER` or `WORKER/DEVICE`; a worker is a name or `rank:NUMBER`, and the device defaults to the
    CPU. Tensors are sent with a call, and results come back to the CPU, or as the device map for the worker says; in a
    context of distributed autograd, gradients are sent, too. Methods that need the module's tensors in this process
    raise `ValueError`; `remote_parameters()` returns references to them. `ValueError` if `module_cls` is not a module
    class; exceptions of its constructor are raised here.
    """

    def __init__(
        self,
        remote_device: str,
        module_cls: Callable[..., Module],
        args: Sequence[Arg] | None = None,
        kwargs: Mapping[str, Arg] | None = None,
    ) -> None:
        log_api_usage_once("torch.distributed.nn.api.remote_module")
        worker, device = _parsed(remote_device)
        reference = remote(worker, _create, (module_cls, tuple(args or ()), dict(kwargs or {}), device))
        reference.created().wait()
        self.become(reference, device, _taken_by(module_cls))

    def become(self, reference: RRef[Result], device: str, takes: _ForwardSignature | None) -> None:
        super().__init__()
        self.on = reference.owner_name()
        self._owner = reference.owner()
        self.device = device
        self._reference = reference
        self._takes = takes

    @staticmethod
    def init_from_module_rref(remote_device: str, module_rref: RRef[Result]) -> RemoteModule:
        """A remote module from a reference to a module. The module is moved to the device, and runs on its owner."""
        _, device = _parsed(remote_device)
        remote_module = object.__new__(RemoteModule)
        remote_module.become(module_rref, device, rpc_sync(module_rref.owner(), _placed, (module_rref, device)))
        return remote_module

    # --- forward ---

    def forward(self, *args: Arg, **kwargs: Arg) -> Result:
        """The remote module's result for these arguments."""
        return rpc_sync(self._owner, _forward, self._call(args, kwargs))

    def forward_async(self, *args: Arg, **kwargs: Arg) -> Future[Result]:
        """Run `forward` without waiting: returns a future of the result."""
        return rpc_async(self._owner, _forward, self._call(args, kwargs))

    def _call(self, args: Args, kwargs: Kwargs) -> Args:
        if self._takes is not None:
            self._takes.require(repr(self), args, kwargs)
        return self._reference, self.device, bool(current_agent().devices.to(self._owner)), args, kwargs

    # --- the remote module ---

    def remote_parameters(self, recurse: bool = True) -> list[RRef[Result]]:
        """References to the module's parameters; with `recurse`, also to those of its submodules."""
        return rpc_sync(self._owner, _parameters, (self._reference, recurse))

    def get_module_rref(self) -> RRef[Result]:
        """A reference to the module."""
        return self._reference

    module_rref = property(get_module_rref)

    def train(self, mode: bool = True) -> RemoteModule:
        """Set training mode on or off for the remote module."""
        self.training = mode
        rpc_sync(self._owner, _train, (self._reference, mode))
        return self

    def __repr__(self) -> str:
        return f"RemoteModule({self.on}/{self.device})"

    def _reduce_for(self, to: WorkerInfo, handed: list[Callable[[], object]]) -> Args:
        del to, handed
        return _unpickled, (self._reference, self.device, self._takes)

    def __reduce__(self) -> NoReturn:
        raise RpcError("Cannot pickle RemoteModule in python pickler. RemoteModule can only be pickled when using RPC")


def _refused(name: str) -> Callable[..., NoReturn]:
    advice = ". Please use ``remote_parameters`` instead." if name == "parameters" else ""

    def method(self: RemoteModule, *args: Arg, **kwargs: Arg) -> NoReturn:
        raise ValueRangeError(f"Method ``{name}`` not supported for RemoteModule{advice}")

    method.__name__ = name
    return method


for _name in _NOT_HERE:
    setattr(RemoteModule, _name, _refused(_name))


def _parsed(remote_device: str) -> tuple[str | int, str]:
    """The worker, by name or number, and the device."""
    parsed_device = RemoteDevice(remote_device)
    worker = parsed_device.rank() if parsed_device.worker_name() is None else parsed_device.worker_name()
    if worker is None:
        raise ValueRangeError(f"remote_device is {remote_device}, which is a device of this worker; name a worker")
    return worker, str(parsed_device.device())


def _taken_by(module_cls: AnyCallable) -> _ForwardSignature | None:
    forward = getattr(module_cls, "forward", None)
    if not inspect.isfunction(forward):
        return None
    _, *rest = inspect.signature(forward).parameters.values()  # the first is `self`
    plain = [one.replace(annotation=one.empty, default=one.empty if one.default is one.empty else None) for one in rest]
    return _ForwardSignature(module_cls.__name__, inspect.Signature(plain))  # without annotations and defaults


# --- executed on the module's worker ----------------------------------------------------------------------------


def _create(module_cls: AnyCallable, args: Sequence[Arg], kwargs: Mapping[str, Arg], device: str) -> Module:
    module = module_cls(*args, **kwargs)
    if not isinstance(module, Module):
        raise ValueRangeError(
            "Expect `module_cls(*args, **kwargs)` returns an instance of <class nn.Module>, but it returns an instance "
            f"of {type(module)}."
        )
    return module.to(device)


def _placed(reference: RRef[Result], device: str) -> _ForwardSignature | None:
    module: Module = reference.local_value().to(device)
    return _taken_by(type(module))


def _forward(reference: RRef[Result], device: str, mapped: bool, args: Arg, kwargs: Arg) -> Result:
    if device == "cpu":
        return reference.local_value()(*args, **kwargs)
    outputs = reference.local_value()(*moved(args, device), **moved(kwargs, device))
    return outputs if mapped else moved(outputs, "cpu")


def _parameters(reference: RRef[Result], recurse: bool) -> list[RRef[Result]]:
    return [RRef(parameter) for parameter in reference.local_value().parameters(recurse)]


def _train(reference: RRef[Result], mode: bool) -> None:
    reference.local_value().train(mode)


def _unpickled(reference: RRef[Result], device: str, takes: _ForwardSignature | None) -> RemoteModule:
    remote_module = object.__new__(RemoteModule)
    remote_module.become(reference, device, takes)
    return remote_module
