"""An optimizer of parameters on several workers."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from weft._base.types import Arg, Kwargs, Result
from weft._base.usage import log_api_usage_once
from weft._lazy.flushing import flush_pending, keeping
from weft._tensor.tensor import Tensor
from weft.distributed.autograd import get_gradients
from weft.distributed.optim._functional import lent_gradients
from weft.distributed.rpc._rref import RRef, remote
from weft.distributed.rpc._state import current_agent
from weft.distributed.rpc._workers import WorkerInfo
from weft.errors import ArgumentError, ValueRangeError
from weft.futures import wait_all


class DistributedOptimizer:
    """Lets each worker update the parameters that it owns, with the gradients in a context of distributed autograd.

    `params_rref` are references to parameters, such as `RemoteModule.remote_parameters()`. Each owner creates its own
    `optimizer_class` with the other arguments. Updates on one worker run one at a time; those of different workers in
    any order. `ValueError` without parameters; exceptions of the class are raised here.
    """

    def __init__(self, optimizer_class: type, params_rref: Sequence[RRef[Result]], *args: Arg, **kwargs: Arg) -> None:
        log_api_usage_once("torch.distributed.optim.DistributedOptimizer")
        by_owner: dict[WorkerInfo, list[RRef[Result]]] = {}
        for reference in params_rref:
            _require_reference(reference)
            by_owner.setdefault(reference.owner(), []).append(reference)
        if not by_owner:
            raise ValueRangeError("optimizer got an empty parameter list")
        self.remote_optimizers: list[RRef[Result]] = [
            remote(owner, _LocalOptimizer, (optimizer_class, references, args, kwargs))
            for owner, references in by_owner.items()
        ]
        wait_all([optimizer.created() for optimizer in self.remote_optimizers])

    def step(self, context_id: int) -> None:
        """Update all parameters; returns when all workers are done. `RuntimeError` for an unknown context."""
        current_agent().contexts.existing(context_id)
        begun = [one.rpc_async().step(context_id) for one in self.remote_optimizers if not one.is_owner()]
        try:
            for one in self.remote_optimizers:
                if one.is_owner():
                    one.local_value().step(context_id)
            flush_pending()
        finally:
            wait_all(begun)


def _require_reference(reference: object) -> None:
    if not isinstance(reference, RRef):
        raise ArgumentError(
            f"DistributedOptimizer takes references to parameters (RRef), but got {type(reference).__name__}; "
            "wrap a parameter of this worker as RRef(parameter)"
        )


class _LocalOptimizer:
    """The optimizer on one owner of parameters."""

    _stepping = threading.Lock()  # one step at a time on this worker

    def __init__(
        self, optimizer_class: type, references: Sequence[RRef[Result]], args: Sequence[Arg], kwargs: Kwargs
    ) -> None:
        self._parameters: list[Tensor] = [reference.local_value() for reference in references]
        self._optimizer = optimizer_class(self._parameters, *args, **kwargs)

    def step(self, context_id: int) -> None:
        """Update with the gradients in a context; `.grad` is not changed. The result is computed after the reply."""
        current_agent().contexts.at(context_id)  # creates it on a worker without messages in it, which has no gradients
        gradients = get_gradients(context_id)
        chosen = [gradients.get(parameter) for parameter in self._parameters]
        with self._stepping, lent_gradients(self._parameters, chosen), keeping():
            self._optimizer.step()
