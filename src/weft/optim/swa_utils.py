"""Averages of a model's weights over training (Izmailov et al., 2018)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Literal

from weft._base.device import DeviceLike, device
from weft._base.dtype import DType, int64
from weft._base.guards import is_a, is_list_or_tuple
from weft._base.state import using
from weft._base.types import Arg, Result, SavedState
from weft._tensor.convert import tensor
from weft._tensor.tensor import Tensor
from weft.errors import ValueRangeError
from weft.nn._module import Module
from weft.nn._norm import BatchNormBase
from weft.optim._optimizer import Optimizer
from weft.optim.lr_scheduler._base import LRScheduler, per_group

if TYPE_CHECKING:
    from weft.optim.lr_scheduler._base import Rate

AverageOne = Callable[[Tensor, Tensor, Tensor | int], Tensor]
"""(average, new parameter, number of parameters averaged so far) -> new average."""

AverageMany = Callable[[Sequence[Tensor], Sequence[Tensor], Tensor | int], None]
"""The same for lists of tensors: (averages, parameters, number), in place."""


def get_ema_avg_fn(decay: float = 0.999) -> AverageOne:
    """A running mean that keeps `decay` of its old value."""
    _check_decay(decay)

    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Tensor | int) -> Tensor:
        del num_averaged
        with using(grad=False):
            return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_ema_multi_avg_fn(decay: float = 0.999) -> AverageMany:
    """`get_ema_avg_fn` for lists of tensors."""
    return _for_lists(get_ema_avg_fn(decay))


def get_swa_avg_fn() -> AverageOne:
    """The mean with equal weights."""

    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Tensor | int) -> Tensor:
        with using(grad=False):
            return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def get_swa_multi_avg_fn() -> AverageMany:
    """`get_swa_avg_fn` for lists of tensors."""
    return _for_lists(get_swa_avg_fn())


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueRangeError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def _for_lists(average: AverageOne) -> AverageMany:
    def update(averages: Sequence[Tensor], currents: Sequence[Tensor], num_averaged: Tensor | int) -> None:
        with using(grad=False):
            for old, new in zip(averages, currents, strict=True):
                old.copy_(average(old, new, num_averaged))

    return update


class AveragedModel(Module):
    """A copy of a model, `module`, with averages of the model's parameters: call `update_parameters`.

    `avg_fn` or `multi_avg_fn` computes the averages; the default is a mean with equal weights. Buffers are copied from
    the model, or averaged too with `use_buffers`.
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: DeviceLike | None = None,
        avg_fn: AverageOne | None = None,
        multi_avg_fn: AverageMany | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Arg, **kwargs: Arg) -> Result:
        """The result of the averaged model."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Update the averages with the model's parameters."""
        with using(grad=False):
            averages = [param.detach() for param in self._averaged(self.module)]
            currents = [new.detach().to(old.device) for old, new in zip(averages, self._averaged(model), strict=False)]
            if int(self.n_averaged) == 0:
                for old, new in zip(averages, currents, strict=False):
                    old.copy_(new)
            else:
                self._average(averages, currents)
            if not self.use_buffers:
                for old, new in zip(self.module.buffers(), model.buffers(), strict=True):
                    old.detach().copy_(new.detach().to(old.device))
            self.n_averaged += 1

    def _averaged(self, model: Module) -> Iterable[Tensor]:
        return chain(model.parameters(), model.buffers()) if self.use_buffers else model.parameters()

    def _average(self, averages: list[Tensor], currents: list[Tensor]) -> None:
        together: dict[tuple[device, DType], tuple[list[Tensor], list[Tensor]]] = {}
        for old, new in zip(averages, currents, strict=False):
            olds, news = together.setdefault((old.device, old.dtype), ([], []))
            olds.append(old)
            news.append(new)
        update = self.multi_avg_fn or _for_lists(self.avg_fn or get_swa_avg_fn())
        for (destination, _), (olds, news) in together.items():
            update(olds, news, self.n_averaged.to(destination))


def update_bn(loader: Iterable[Arg], model: Module, device: DeviceLike | None = None) -> None:
    """Compute the running statistics of the batch normalisations of `model` again, from the batches of `loader`.

    If a batch is a list or tuple, its first entry is the model's input.
    """
    norms = {module: module.momentum for module in model.modules() if isinstance(module, BatchNormBase)}
    if not norms:
        return
    was_training = model.training
    model.train()
    try:
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # for a mean over all batches
        with using(grad=False):
            for batch in loader:
                entry = batch[0] if is_list_or_tuple(batch) else batch
                model(entry if device is None else entry.to(device))
    finally:
        for norm, momentum in norms.items():
            norm.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """Moves the rate to `swa_lr` over `anneal_epochs`, along a cosine or linearly, and keeps it there."""

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        last_epoch: int = -1,
    ) -> None:
        rates = per_group("swa_lr", optimizer, swa_lr)
        if anneal_strategy not in ("cos", "linear"):
            raise ValueRangeError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not is_a(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueRangeError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        for rate, group in zip(rates, optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        self._set_anneal_func(anneal_strategy)
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _set_anneal_func(self, anneal_strategy: Literal["cos", "linear"]) -> None:
        self._anneal_strategy: Literal["cos", "linear"] = anneal_strategy
        self.anneal_func = self._cosine_anneal if anneal_strategy == "cos" else self._linear_anneal

    @staticmethod
    def _linear_anneal(t: float) -> float:
        return t

    @staticmethod
    def _cosine_anneal(t: float) -> float:
        return (1 - math.cos(math.pi * t)) / 2

    def _share(self, step: int) -> float:
        """The share of the change that is done after so many steps."""
        return self.anneal_func(max(0.0, min(1.0, step / max(1, self.anneal_epochs))))

    def state_dict(self) -> SavedState:
        """The state, without the optimizer and `anneal_func`."""
        state = super().state_dict()
        del state["anneal_func"]
        return state

    def load_state_dict(self, state_dict: SavedState) -> None:
        """Load a state dict of a schedule of the same kind."""
        super().load_state_dict(state_dict)
        self._set_anneal_func(self._anneal_strategy)

    def _next_rates(self) -> list[Rate]:
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        rates: list[Rate] = []
        for group in self.optimizer.param_groups:
            end = group["swa_lr"]
            start = end if before == 1 else (group["lr"] - before * end) / (1 - before)
            rates.append(end * now + start * (1 - now))
        return rates
