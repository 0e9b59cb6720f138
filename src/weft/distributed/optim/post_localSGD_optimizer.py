"""Local SGD after a while, as an optimizer around another one.

Lin et al., "Don't use large mini-batches, use local SGD", 2020 (https://arxiv.org/abs/1808.07217).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from weft.distributed.algorithms.model_averaging.averagers import ModelAverager
from weft.optim._optimizer import Group, Optimizer


class PostLocalSGDOptimizer(Optimizer):
    """Steps as `optim` does, and lets `averager` average the parameters after each step, when it is time.

    It shares groups and state with `optim`. Its state dict also has the number of the averager's step.
    """

    def __init__(self, optim: Optimizer, averager: ModelAverager) -> None:
        self.optim = optim
        self.averager = averager
        self._share()

    def _share(self) -> None:
        shared = {"defaults": self.optim.defaults, "state": self.optim.state, "param_groups": self.optim.param_groups}
        self.__setstate__(shared)

    def __repr__(self) -> str:
        return repr(self.optim)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters, and average them if it is time; what the inner optimizer returns."""
        loss = self.optim.step(closure)
        self.averager.average_parameters(self.param_groups)
        return loss

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters, with options where they differ from the defaults."""
        self.optim.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """That of the inner optimizer, with the averager's `step`."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over such a state dict; without a `step` the averager begins anew, with a warning."""
        self.optim.load_state_dict(state_dict)
        self._share()
        if "step" not in state_dict:
            warnings.warn(
                "Loaded state dict does not contain a step counter for an averager. Setting step counter to 0.",
                stacklevel=2,
            )
        self.averager.step = state_dict.get("step", 0)
