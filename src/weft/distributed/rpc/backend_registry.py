"""The backends of remote calls, by name."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from weft._base.types import AnyCallable, Arg, AttributeValue, Result
from weft._comm.stores.store import Store
from weft.distributed.rpc import constants
from weft.distributed.rpc._join import join
from weft.distributed.rpc.options import TensorPipeRpcBackendOptions
from weft.errors import ArgumentError, OptionError


class BackendValue(NamedTuple):
    """The function that makes a backend's options, and the one by which its agent joins the job."""

    construct_rpc_backend_options_handler: AnyCallable
    init_backend_handler: AnyCallable


class _BackendType(Enum):
    def __repr__(self) -> str:
        return f"BackendType.{self.name}"


def _join(store: Store, name: str, rank: int, world_size: int | None, rpc_backend_options: Arg) -> Result:
    if not isinstance(rpc_backend_options, TensorPipeRpcBackendOptions):
        raise ArgumentError(f"`rpc_backend_options` must be a `TensorPipeRpcBackendOptions`. {rpc_backend_options}")
    return join(store, name, rank, world_size, rpc_backend_options)


_types: list[Result] = [_BackendType("BackendType", {"TENSORPIPE": BackendValue(TensorPipeRpcBackendOptions, _join)})]


def __getattr__(name: str) -> AttributeValue:
    if name == "BackendType":  # a new enum is made by each registration
        return _types[-1]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def backend_registered(backend_name: str) -> bool:
    """Whether there is a backend of this name."""
    return backend_name in _types[-1].__members__


def register_backend(
    backend_name: str,
    construct_rpc_backend_options_handler: AnyCallable,
    init_backend_handler: AnyCallable,
) -> Result:
    """Add a backend; returns its member of a new `BackendType`.

    `construct_rpc_backend_options_handler(rpc_timeout, init_method, **kwargs)` makes options, and
    `init_backend_handler(store=, name=, rank=, world_size=, rpc_backend_options=)` joins the job and gives an agent.
    `RuntimeError` for a name that is taken.
    """
    if backend_registered(backend_name):
        raise OptionError(f"RPC backend {backend_name}: already registered")
    members = {member.name: member.value for member in _types[-1]}
    added = BackendValue(construct_rpc_backend_options_handler, init_backend_handler)
    _types.append(_BackendType("BackendType", {**members, backend_name: added}))
    return _types[-1][backend_name]


def construct_rpc_backend_options(
    backend: Arg,
    rpc_timeout: float = constants.DEFAULT_RPC_TIMEOUT_SEC,
    init_method: str = constants.DEFAULT_INIT_METHOD,
    **kwargs: Arg,
) -> Result:
    """Options for a backend."""
    return backend.value.construct_rpc_backend_options_handler(
        rpc_timeout=rpc_timeout, init_method=init_method, **kwargs
    )


def init_backend(backend: Arg, *args: Arg, **kwargs: Arg) -> Result:
    """Join the job by a backend; returns its agent."""
    return backend.value.init_backend_handler(*args, **kwargs)


def is_backend(value: object) -> bool:
    """Whether this is a member of a present or former `BackendType`."""
    return isinstance(value, _BackendType)
