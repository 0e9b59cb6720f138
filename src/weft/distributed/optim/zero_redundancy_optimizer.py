"""An optimizer whose state is sharded over the ranks.

Rajbhandari et al., "ZeRO: Memory optimizations toward training trillion parameter models", 2020
(https://arxiv.org/abs/1910.02054), stage 1.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping

from weft._base.device import device
from weft._base.types import Arg, Result, SavedState
from weft._lazy.flushing import keeping
from weft._tensor.tensor import Tensor
from weft.distributed._broadcast_coalesced import broadcast_coalesced
from weft.distributed._group import ProcessGroup
from weft.distributed._objects import gather_object
from weft.distributed._world import AnyGroup, require_group
from weft.distributed.algorithms.join import Join, Joinable, JoinHook
from weft.distributed.optim._functional import FunctionalOptimizer, lent_gradients
from weft.errors import StateDictError, ValueRangeError
from weft.optim._optimizer import Group, Optimizer, Params

_log = logging.getLogger(__name__)


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """Lets each rank update a part of the parameters, and so hold the state of that part only.

    Each parameter is assigned to one rank: in order of decreasing size, to the rank with the fewest elements so far. A
    step updates the rank's own parameters by `optim`, an `optimizer_class` with the options `defaults`, and sends the
    results to all ranks. All ranks must make the same calls.

    overlap_with_ddp            a hook of `ddp_zero_hook` updates the parameters in the backward pass; `step` does
                                nothing
    parameters_as_bucket_view   accepted, without effect: parameters sent together are copied together

    `state` has only the rank's own parameters.
    """

    def __init__(
        self,
        params: Params,
        optimizer_class: type[Result],
        process_group: AnyGroup = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Arg,
    ) -> None:
        if issubclass(optimizer_class, FunctionalOptimizer):
            raise ValueRangeError(
                f"Passing in a functional optimizer {optimizer_class}; pass the class of weft.optim that it stands for"
            )
        del parameters_as_bucket_view
        Joinable.__init__(self)
        self.process_group: ProcessGroup = require_group(process_group)
        self.overlap_with_ddp = overlap_with_ddp
        self._rank_of: dict[Tensor, int] = {}
        self._elements = [0] * self.process_group.size()
        self._consolidated: defaultdict[Hashable, SavedState] | None = None
        self.optim: Result = None  # an optimizer, once it is made
        super().__init__(params, defaults)
        self.optim = optimizer_class([self._part(group) for group in self.param_groups], **defaults)
        self.state = self.optim.state
        for group, part in zip(self.param_groups, self.optim.param_groups, strict=True):
            group.update(_options({**part, **group}))

    def _part(self, group: Group) -> Group:
        """A group with only the rank's own parameters."""
        own = [param for param in group["params"] if self._rank_of[param] == self.process_group.rank()]
        return {**_options(group), "params": own}

    def add_param_group(self, param_group: Group) -> None:
        """Add a group of parameters, with the options that differ from the defaults; on all ranks."""
        if self.optim is None and _lacks_params(param_group):
            raise ValueRangeError(f"each parameter group needs the key 'params', but one has {sorted(param_group)}")
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        if any(param.is_sparse for param in group["params"]):
            raise ValueRangeError("ZeroRedundancyOptimizer takes dense parameters only, but one is sparse")
        for param in sorted(group["params"], key=lambda param: -param.numel()):
            least = self._elements.index(min(self._elements))
            self._rank_of[param] = least
            self._elements[least] += param.numel()
        if self.optim is not None:
            self.optim.add_param_group(self._part(group))
            group.update(_options({**self.optim.param_groups[-1], **group}))

    # --- stepping ---------------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Result] | None = None, **kwargs: Arg) -> Result:
        """Update the rank's own parameters, and send the results to all ranks; returns the inner step's result.

        With `overlap_with_ddp` it does nothing, since the backward pass has done it.
        """
        if self.overlap_with_ddp:
            _log.warning("`step()` should not be included in the training loop when `overlap_with_ddp=True`")
            return None
        Join.notify_join_context(self)
        self._copy_options(self.param_groups, self.optim.param_groups)
        loss = self.optim.step(**kwargs) if closure is None else self.optim.step(closure, **kwargs)
        self._copy_options(self.optim.param_groups, self.param_groups)
        self._share([param for param in self._rank_of if param.requires_grad])
        return loss

    def step_with(self, gradients: Mapping[Tensor, Tensor]) -> None:
        """Update those parameters whose gradients are given; `.grad` is not used."""
        self._copy_options(self.param_groups, self.optim.param_groups)
        parts = [group["params"] for group in self.optim.param_groups]
        chosen = [[param for param in part if param in gradients] for part in parts]
        own = [param for part in chosen for param in part]
        try:
            for group, part in zip(self.optim.param_groups, chosen, strict=True):
                group["params"] = part
            with lent_gradients(own, [gradients[param] for param in own]), keeping():
                self.optim.step()
        finally:
            for group, part in zip(self.optim.param_groups, parts, strict=True):
                group["params"] = part
        self._share([param for param in gradients if param in self._rank_of])

    def _share(self, params: list[Tensor]) -> None:
        """Broadcast parameters from their owners to all ranks."""
        for rank in range(self.process_group.size()):
            own = [param for param in params if self._rank_of[param] == rank]
            broadcast_coalesced(own, rank, self.process_group)

    def _copy_options(self, source: list[Group], target: list[Group]) -> None:
        """Copy options between the groups: schedules change those of this optimizer, and some optimizers their own."""
        for one, other in zip(source, target, strict=True):
            other.update(_options(one))

    # --- uneven inputs ----------------------------------------------------------------------------------------

    def join_hook(self, **kwargs: Arg) -> JoinHook:
        """The actions of this rank when it has no data left: steps with the gradients that a replica puts in `.grad`.

        So a `DistributedDataParallel` must come before this optimizer in the list of `Join`.
        """
        return _StepJoinHook(self)

    @property
    def join_device(self) -> device:
        """The device of the parameters."""
        return next(iter(self._rank_of)).device

    @property
    def join_process_group(self) -> ProcessGroup:
        """The group over which the state is sharded."""
        return self.process_group

    # --- state dicts ------------------------------------------------------------------------------------------

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Collect the state of all parameters on the rank `to` of the group, for `state_dict` there; on all ranks."""
        numbers = {param: at for at, param in enumerate(self._params_in_order())}
        own = {numbers.get(key, key): value for key, value in self.state.items()}
        is_target = self.process_group.rank() == to
        parts: list[Result] | None = [None] * self.process_group.size() if is_target else None
        gather_object(own, parts, group=self.process_group, group_dst=to)
        if parts is not None:
            whole = {number: state for part in parts for number, state in part.items()}
            self._consolidated = defaultdict(dict, sorted(whole.items()))

    def _params_in_order(self) -> list[Tensor]:
        return [param for group in self.param_groups for param in group["params"]]

    def state_dict(self) -> SavedState:
        """The state of all parameters as it was last consolidated, as that of one optimizer for all of them.

        `RuntimeError` on a rank that does not have it.
        """
        if self._consolidated is None:
            raise StateDictError(
                "Optimizer state has not been consolidated on this rank. Please call `consolidate_state_dict(to="
                f"{self.process_group.rank()})` on all ranks beforehand if you meant to save the global state."
            )
        own, self.state = self.state, self._consolidated
        try:
            return super().state_dict()
        finally:
            self.state = own

    def load_state_dict(self, state_dict: SavedState) -> None:
        """Load the state of all parameters, of which this rank keeps that of its own; errors are as for `Optimizer`."""
        order, rank = self._params_in_order(), self.process_group.rank()
        owners = dict(enumerate(self._rank_of[param] for param in order))
        kept = {key: value for key, value in state_dict["state"].items() if owners.get(key, rank) == rank}
        super().load_state_dict({**state_dict, "state": kept})
        parts = [self._part(group) for group in self.param_groups]
        self.optim.__setstate__({"state": self.state, "param_groups": parts})

    def _require_own_options(self, at: int, group: Group) -> None:
        self.optim._require_own_options(at, group)

    def _needed_shapes(self, group: Group, param: Tensor) -> Mapping[str, tuple[int, ...]]:
        return self.optim._needed_shapes(group, param)


class _StepJoinHook(JoinHook):
    """Takes part in the steps of the other ranks."""

    def __init__(self, optimizer: ZeroRedundancyOptimizer) -> None:
        self._optimizer = optimizer

    def main_hook(self) -> None:
        if not self._optimizer.overlap_with_ddp:
            self._optimizer.step()


def _options(group: Group) -> Group:
    """A group without its parameters."""
    return {name: value for name, value in group.items() if name not in ("params", "param_names")}


def _lacks_params(group: object) -> bool:
    return isinstance(group, Mapping) and "params" not in group
