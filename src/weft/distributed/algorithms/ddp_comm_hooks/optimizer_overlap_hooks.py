"""Updates of parameters in a communication hook: those of a bucket, while later buckets are still exchanged."""

from __future__ import annotations

from collections.abc import Iterable

from weft._base.state import using
from weft._base.types import Arg, Result
from weft._lazy.flushing import keeping
from weft._tensor.tensor import Tensor
from weft.distributed._grad_bucket import GradBucket, Hook, flat_result, gradients_of
from weft.errors import ValueRangeError
from weft.futures import Future


class _OptimizerHookState:
    """A functional optimizer (`as_functional_optim`), and the parameters that it updates; by default all.

    `ValueError` for an optimizer without a method `step_param`.
    """

    def __init__(self, functional_optim: Arg, params: Iterable[Tensor] | None = None) -> None:
        if not hasattr(functional_optim, "step_param"):
            raise ValueRangeError(
                f"Class {type(functional_optim)} must implement method step_param. as_functional_optim "
                "makes optimizers that have it"
            )
        self.functional_optimizer = functional_optim
        self.params_to_optimize = None if params is None else set(params)

    def optimizes(self, param: Tensor) -> bool:
        """Whether the optimizer updates a parameter."""
        return self.params_to_optimize is None or param in self.params_to_optimize


def hook_then_optimizer(hook: Hook, optimizer_state: _OptimizerHookState) -> Hook:
    """A hook that exchanges a bucket's gradients as `hook` does, and updates its parameters as soon as they arrive.

    Its result is that of `hook`.
    """

    def exchange_and_update(hook_state: Arg, bucket: GradBucket) -> Future[Result]:
        def update(done: Future[Result]) -> Tensor:
            # The steps of a bucket's parameters are recorded together, instead of as a program for each.
            with using(grad=False), keeping():
                flat = flat_result(done.value(), bucket)
                for param, gradient in gradients_of(flat, bucket).items():
                    if optimizer_state.optimizes(param):
                        optimizer_state.functional_optimizer.step_param(param, gradient)
            return flat

        return hook(hook_state, bucket).then(update)

    return exchange_and_update


# PyTorch has it under this name
_hook_then_optimizer = hook_then_optimizer
