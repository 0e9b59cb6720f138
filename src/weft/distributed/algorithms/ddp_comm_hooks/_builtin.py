"""Hooks that are selected by an enum."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from weft._base.types import Arg
from weft.distributed._grad_bucket import Hook
from weft.distributed.algorithms.ddp_comm_hooks import (
    debugging_hooks,
    default_hooks,
    powerSGD_hook,
    quantization_hooks,
)
from weft.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState
from weft.errors import ArgumentError

if TYPE_CHECKING:
    from weft.nn._module import Module


class BuiltinCommHookType(Enum):
    """Hooks that `DistributedDataParallel._register_builtin_comm_hook` takes."""

    ALLREDUCE = 0
    FP16_COMPRESS = 1


def hook_of_type(kind: object) -> Hook:
    """The hook that an enum member stands for."""
    if not isinstance(kind, BuiltinCommHookType):
        raise ArgumentError(f"a built-in hook is a member of BuiltinCommHookType, but got {kind!r}")
    if kind is BuiltinCommHookType.ALLREDUCE:
        return default_hooks.allreduce_hook
    return default_hooks.fp16_compress_hook


def _plain(comm_hook: Hook, model: Module, state: Arg) -> None:
    model.register_comm_hook(state, comm_hook)


def _power_sgd(
    comm_hook: Hook, model: Module, state: Arg, matrix_approximation_rank: int, start_powerSGD_iter: int = 1_000
) -> None:
    own = PowerSGDState(state, matrix_approximation_rank, start_powerSGD_iter)
    model.register_comm_hook(own, comm_hook)


class _Registers:
    """The value of an enum member: a function that registers its hook on a model."""

    def __init__(self, register: Callable[..., None], comm_hook: Hook, **options: Arg) -> None:
        self._call = partial(register, comm_hook=comm_hook, **options)

    def __call__(self, *, model: Module, state: Arg, **options: Arg) -> None:
        self._call(model=model, state=state, **options)


class DDPCommHookType(Enum):
    """Hooks with their options; `DDPCommHookType.X.value(model=…, state=…)` registers one."""

    ALLREDUCE = _Registers(_plain, default_hooks.allreduce_hook)
    FP16_COMPRESS = _Registers(_plain, default_hooks.fp16_compress_hook)
    BF16_COMPRESS = _Registers(_plain, default_hooks.bf16_compress_hook)
    QUANTIZE_PER_TENSOR = _Registers(_plain, quantization_hooks.quantization_pertensor_hook)
    QUANTIZE_PER_CHANNEL = _Registers(_plain, quantization_hooks.quantization_perchannel_hook)
    POWER_SGD = _Registers(_power_sgd, powerSGD_hook.powerSGD_hook, matrix_approximation_rank=1)
    POWER_SGD_RANK2 = _Registers(_power_sgd, powerSGD_hook.powerSGD_hook, matrix_approximation_rank=2)
    BATCHED_POWER_SGD = _Registers(_power_sgd, powerSGD_hook.batched_powerSGD_hook, matrix_approximation_rank=1)
    BATCHED_POWER_SGD_RANK2 = _Registers(_power_sgd, powerSGD_hook.batched_powerSGD_hook, matrix_approximation_rank=2)
    NOOP = _Registers(_plain, debugging_hooks.noop_hook)


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Module, state: Arg = None) -> None:
    """Register a hook of `DDPCommHookType` on a replica; `state` is a process group, or None for the default one."""
    comm_hook_type.value(model=model, state=state)
