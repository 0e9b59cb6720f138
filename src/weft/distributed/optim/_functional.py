"""Optimizers of `weft.optim` whose steps are given the gradients, instead of reading `.grad`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar

from weft._base.types import Arg, Kwargs, SavedState
from weft._tensor.tensor import Tensor
from weft.errors import ValueRangeError
from weft.optim import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, Optimizer, RMSprop, Rprop


@contextmanager
def lent_gradients(params: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> Generator[None]:
    """Put these gradients into `.grad` within the block; afterwards `.grad` is restored."""
    own = [param.grad for param in params]
    try:
        for param, gradient in zip(params, gradients, strict=True):
            param.grad = gradient
        yield
    finally:
        for param, gradient in zip(params, own, strict=True):
            param.grad = gradient


class FunctionalOptimizer:
    """An optimizer of one group whose steps take gradients, and neither read nor change `.grad`.

    The arguments after `params` are those of the class in `weft.optim` that does the work. `params` may be empty only
    with `_allow_empty_param_list` (else `ValueError`), for an optimizer that is used only by `step_param`.
    """

    optimizer_class: ClassVar[Callable[..., Optimizer]]
    _lr: ClassVar[float]

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float | Tensor | None = None,
        *args: Arg,
        _allow_empty_param_list: bool = False,
        **kwargs: Arg,
    ) -> None:
        group = {"params": list(params)}
        if not group["params"] and not _allow_empty_param_list:
            raise ValueRangeError("optimizer got an empty parameter list")
        self._optimizer: Optimizer = self.optimizer_class([group], self._lr if lr is None else lr, *args, **kwargs)
        self.param_group = self._optimizer.param_groups[0]

    @property
    def defaults(self) -> Kwargs:
        """The options, by name."""
        return self._optimizer.defaults

    @property
    def state(self) -> Mapping[Tensor, SavedState]:
        """The state by parameter."""
        return self._optimizer.state

    def step_param(self, param: Tensor, grad: Tensor | None) -> None:
        """Update one parameter, which need not be one of `params`; does nothing without a gradient."""
        mine = self.param_group["params"]
        self.param_group["params"] = [param]
        try:
            self.step([grad])
        finally:
            self.param_group["params"] = mine

    def step(self, gradients: Sequence[Tensor | None]) -> None:
        """Update the parameters, given their gradients in order; parameters whose gradient is None are skipped."""
        params = self.param_group["params"]
        if len(params) != len(gradients):
            raise ValueRangeError(
                "the gradients passed in does not equal to the size of the parameters! "
                f"Params length: {len(params)}. Gradients length: {len(gradients)}"
            )
        with lent_gradients(params, gradients):
            self._optimizer.step()


class _FunctionalAdadelta(FunctionalOptimizer):
    optimizer_class, _lr = Adadelta, 1.0


class _FunctionalAdagrad(FunctionalOptimizer):
    optimizer_class, _lr = Adagrad, 1e-2


class _FunctionalAdam(FunctionalOptimizer):
    optimizer_class, _lr = Adam, 1e-3


class _FunctionalAdamW(FunctionalOptimizer):
    optimizer_class, _lr = AdamW, 1e-3


class _FunctionalAdamax(FunctionalOptimizer):
    optimizer_class, _lr = Adamax, 1e-3


class _FunctionalRMSprop(FunctionalOptimizer):
    optimizer_class, _lr = RMSprop, 1e-2


class _FunctionalRprop(FunctionalOptimizer):
    optimizer_class, _lr = Rprop, 1e-2


class _FunctionalSGD(FunctionalOptimizer):
    optimizer_class, _lr = SGD, 1e-2


# for the package, whose modules have them under PyTorch's names
FunctionalAdadelta = _FunctionalAdadelta
FunctionalAdagrad = _FunctionalAdagrad
FunctionalAdam = _FunctionalAdam
FunctionalAdamW = _FunctionalAdamW
FunctionalAdamax = _FunctionalAdamax
FunctionalRMSprop = _FunctionalRMSprop
FunctionalRprop = _FunctionalRprop
FunctionalSGD = _FunctionalSGD
