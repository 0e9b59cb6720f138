"""Schedules given by the user's functions of the epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from weft._base.guards import is_list_or_tuple
from weft._base.types import Arg, SavedState
from weft.errors import ArgumentError, ValueRangeError
from weft.optim._optimizer import Optimizer
from weft.optim.lr_scheduler._base import LRScheduler, attributes_of

if TYPE_CHECKING:
    from weft.optim.lr_scheduler._base import Rate

Lambda = Callable[[int], float]


class LambdaLR(LRScheduler):
    """The initial rate times a function of the epoch, or one function for each group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Lambda | Sequence[Lambda], last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        count = len(optimizer.param_groups)
        self.lr_lambdas: list[Arg] = [*lr_lambda] if is_list_or_tuple(lr_lambda) else [lr_lambda] * count
        if len(self.lr_lambdas) != count:
            raise ValueRangeError(f"Expected {count} lr_lambdas, but got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch)

    def _next_rates(self) -> list[Rate]:
        return [base * scale(self.last_epoch) for scale, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]

    def state_dict(self) -> SavedState:
        """The state, without the functions, but with the attributes of those that are objects."""
        state = super().state_dict()
        del state["lr_lambdas"]
        return {**state, "lr_lambdas": [attributes_of(function) for function in self.lr_lambdas]}

    def load_state_dict(self, state_dict: SavedState) -> None:
        """Load a state dict; the functions stay."""
        rest = dict(state_dict)
        for function, attributes in zip(self.lr_lambdas, rest.pop("lr_lambdas"), strict=True):
            if attributes is not None:
                function.__dict__.update(attributes)
        super().load_state_dict(rest)


class MultiplicativeLR(LambdaLR):
    """Multiplies the rate by a function of the epoch every epoch; there may be one function for each group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Lambda | Sequence[Lambda], last_epoch: int = -1) -> None:
        for function in lr_lambda if is_list_or_tuple(lr_lambda) else [lr_lambda]:
            if not callable(function):
                raise ArgumentError(f"lr_lambda should be a function, but got {type(function).__name__}")
        super().__init__(optimizer, lr_lambda, last_epoch)

    def _next_rates(self) -> list[Rate]:
        if self._is_initial:
            return self._rates()
        return [rate * scale(self.last_epoch) for scale, rate in zip(self.lr_lambdas, self._rates(), strict=True)]
