"""Post-local SGD as a wrapper around another optimizer.

Lin et al., "Don't use large mini-batches, use local SGD", 2020 (https://arxiv.org/abs/1808.07217).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

from weft._base.types import Result, SavedState
from weft.distributed.algorithms.model_averaging.averagers import ModelAverager
from weft.optim._optimizer import Group, Optimizer


class PostLocalSGDOptimizer(Optimizer):
    """Steps as `optim` does; after each step, `averager` averages the parameters if this step is due.

    It shares groups and state with `optim`. Its state dict also has the averager's step.
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

    def step(self, closure: Callable[[], Result] | None = None) -> Result:
        """Update the parameters, and average them if this step is due; returns the inner optimizer's result."""
        loss = self.optim.step(closure)
        self.averager.average_parameters(self.param_groups)
        return loss

    def add_param_group(self, param_group: Group) -> None:
        """Add a group of parameters, with the options that differ from the defaults."""
        self.optim.add_param_group(param_group)

    def state_dict(self) -> SavedState:
        """The inner optimizer's state dict, with the averager's `step`."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict: SavedState) -> None:
        """Load such a state dict; if it has no `step`, the averager restarts at 0, with a warning."""
        self.optim.load_state_dict(state_dict)
        self._share()
        if "step" not in state_dict:
            warnings.warn(
                "Loaded state dict does not contain a step counter for an averager. Setting step counter to 0.",
                stacklevel=2,
            )
        self.averager.step = state_dict.get("step", 0)
