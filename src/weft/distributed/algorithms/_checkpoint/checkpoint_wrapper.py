"""Modules whose activations are not kept for the backward pass, but recomputed there or kept on the host."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from enum import Enum, auto
from functools import partial

from weft._base.types import AnyCallable, Arg, Result, SavedState
from weft.autograd.graph import save_on_cpu
from weft.distributed._module_wrapper import ModuleWrapper
from weft.distributed.fsdp.wrap import lambda_auto_wrap_policy, wrap_submodules
from weft.nn import Module
from weft.utils.checkpoint import checkpoint


class CheckpointImpl(Enum):
    """Which of `utils.checkpoint`'s two ways PyTorch takes; here they are one."""

    REENTRANT = auto()
    NO_REENTRANT = auto()


class ActivationWrapper(ModuleWrapper):
    """A module around another one; names of parameters, and state dicts, are as without it."""

    inner_name = "_checkpoint_wrapped_module"

    def __init__(self, mod: Module) -> None:
        super().__init__(mod)
        self._register_state_dict_hook(_saved)
        self.register_load_state_dict_pre_hook(_loading)

    @abstractmethod
    def forward(self, *args: Arg, **kwargs: Arg) -> Result:
        """What the wrapped module computes."""
        raise ValueError("Subclasses should implement forward().")


class OffloadWrapper(ActivationWrapper):
    """A module that keeps what its backward pass reads in the host's memory."""

    def forward(self, *args: Arg, **kwargs: Arg) -> Result:
        """What the wrapped module computes."""
        with save_on_cpu(pin_memory=True):
            return self.module(*args, **kwargs)


class CheckpointWrapper(ActivationWrapper):
    """A module that is computed again in the backward pass, by `utils.checkpoint` or by `checkpoint_fn`."""

    def __init__(
        self,
        mod: Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: AnyCallable | None = None,
        **checkpoint_fn_kwargs: Arg,
    ) -> None:
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        if checkpoint_fn is None:
            reentrant = checkpoint_impl is CheckpointImpl.REENTRANT
            checkpoint_fn = partial(checkpoint, use_reentrant=reentrant)
        self.checkpoint_fn = partial(checkpoint_fn, **checkpoint_fn_kwargs)

    def forward(self, *args: Arg, **kwargs: Arg) -> Result:
        """What the wrapped module computes."""
        return self.checkpoint_fn(self.module, *args, **kwargs)


def offload_wrapper(module: Module) -> OffloadWrapper:
    """A module that keeps what its backward pass reads in the host's memory."""
    return OffloadWrapper(module)


def checkpoint_wrapper(
    module: Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: AnyCallable | None = None,
    **checkpoint_fn_kwargs: Arg,
) -> CheckpointWrapper:
    """A module that is computed again in the backward pass.

    `checkpoint_fn(module, *args, **kwargs)` takes the place of `utils.checkpoint.checkpoint`; the further keywords are
    its own.
    """
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def apply_activation_checkpointing(
    model: Module,
    checkpoint_wrapper_fn: Callable[..., Module] = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = lambda _: True,
    auto_wrap_policy: Callable[[Module, bool, int], bool] | None = None,
) -> None:
    """Wrap the modules below `model` for which `check_fn`, or a policy of FSDP, says so; the inner ones first."""
    policy = auto_wrap_policy or partial(lambda_auto_wrap_policy, lambda_fn=check_fn)
    wrap_submodules(model, policy, checkpoint_wrapper_fn, (), (), {})


def _saved(module: ActivationWrapper, state: SavedState, prefix: str, local_metadata: object) -> None:
    del local_metadata
    inner = f"{prefix}{module.inner_name}."
    for key in [key for key in state if key.startswith(inner)]:
        state[prefix + key.removeprefix(inner)] = state.pop(key)


def _loading(module: ActivationWrapper, state: SavedState, prefix: str, *rest: Arg) -> None:
    del rest
    inner = f"{prefix}{module.inner_name}."
    for key in [key for key in state if key.startswith(prefix) and not key.startswith(inner)]:
        state[inner + key.removeprefix(prefix)] = state.pop(key)
