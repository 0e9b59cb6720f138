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


# no cell: filled when this module is imported
FUNCTIONAL: dict[object, Callable[..., FunctionalOptimizer]] = {}
"""The classes of functional optimizers, by those of `weft.optim`."""


def _functional(optimizer_class: type[Optimizer], lr: float) -> type[FunctionalOptimizer]:
    attributes = {"optimizer_class": optimizer_class, "_lr": lr, "__module__": __name__}
    functional = type(f"_Functional{optimizer_class.__name__}", (FunctionalOptimizer,), attributes)
    FUNCTIONAL[optimizer_class] = functional
    return functional


_FunctionalAdagrad = _functional(Adagrad, 1e-2)
_FunctionalAdam = _functional(Adam, 1e-3)
_FunctionalAdamW = _functional(AdamW, 1e-3)
_FunctionalSGD = _functional(SGD, 1e-2)
_FunctionalAdadelta = _functional(Adadelta, 1.0)
_FunctionalRMSprop = _functional(RMSprop, 1e-2)
_FunctionalRprop = _functional(Rprop, 1e-2)
_FunctionalAdamax = _functional(Adamax, 1e-3)
