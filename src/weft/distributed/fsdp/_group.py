"""Groups of parameters that are gathered, and whose gradients are reduced, together."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

from weft._base.state import ambient
from weft._lazy.external import taken_in
from weft._lazy.flushing import flush_pending
from weft._lazy.role import Leaf
from weft._lazy.value import Value
from weft._tensor.composite.create import zeros
from weft._tensor.gradients import accumulate
from weft._tensor.tensor import Tensor, wrap
from weft.distributed.fsdp._data_parallel import DataParallel, neighbours
from weft.distributed.fsdp._gathered import Gathered, own_program
from weft.distributed.fsdp._parameter import ShardedParameter
from weft.distributed.fsdp._policies import AllGather, MixedPrecisionPolicy
from weft.distributed.fsdp._reduction import Reduction
from weft.errors import GradientError, PreconditionError


class ParameterGroup:
    """The parameters of one call of `fully_shard`.

    reshards_after_forward  whether they are whole only during the forward pass, and again in the backward pass; a
                            number keeps them split over so many ranks between the two
    reduces                 whether backward passes reduce gradients, or accumulate them
    reduces_unused          whether parameters without a gradient take part with zeros
    on_backward             called when the first gradients of a backward pass arrive
    on_return               called when released parameters are about to be gathered again
    gathered                the whole parameters that modules have, or that are on their way
    released                those that the last forward pass has released, while the tape needs them
    """

    def __init__(
        self, parameters: Sequence[ShardedParameter], ranks: DataParallel, policy: MixedPrecisionPolicy
    ) -> None:
        self.parameters = list(parameters)
        self.ranks = ranks
        self.policy = policy
        self.reduction = Reduction(ranks, policy.reduce_dtype)
        self.reshards_after_forward: bool | int = True
        self.reshards_after_backward = True
        self.reduces = True
        self.reduces_unused = False
        self.gather_comm: AllGather | None = None
        self.on_backward: Callable[[], None] = lambda: None
        self.on_return: Callable[[Gathered], None] = lambda gathered: None
        self.gathered: Gathered | None = None
        self.released: weakref.ref[Gathered] | None = None
        self._handles: list[Tensor] = []
        self._reached = False  # whether this backward pass has reduced

    def require_one_dtype(self) -> None:
        """`AssertionError` if trained parameters have several types, since they are reduced in one buffer."""
        dtypes = {p.sharded.dtype for p in self.parameters if p.sharded.requires_grad}
        if len(dtypes) > 1:
            raise PreconditionError(
                f"FSDP expects uniform original parameter dtype but got {set(map(str, dtypes))}; wrap modules of one "
                "type each, or cast them before"
            )

    # --- whole, and in parts ---

    def begin(self, *, async_op: bool = False) -> None:
        """Start to gather the parameters as they are now, unless that has been done."""
        parts = [taken_in(parameter.sharded._read()) for parameter in self.parameters]
        gathered = self.gathered
        # An optimizer's step replaces the values of parts, and what was gathered before it is then out of date.
        if gathered is not None and all(a is b for a, b in zip(gathered.parts, parts, strict=True)):
            return
        types = [p.whole_type(p.dtype_in(self.policy.param_dtype)) for p in self.parameters]
        slots = [parameter.slot for parameter in self.parameters]
        gathered = Gathered(parts, types, slots, self.ranks, self.gather_comm)
        few = self.reshards_after_forward
        if not isinstance(few, bool):
            gathered.few = neighbours(self.ranks, few)
        values = gathered.record(self._differentiate, [p.sharded.requires_grad for p in self.parameters])
        self._handles = [p.handle_on(value) for p, value in zip(self.parameters, values, strict=True)]
        self.gathered = gathered
        gathered.begin(async_op=async_op)

    def unshard(self) -> None:
        """Let the modules have the whole parameters."""
        self.begin()
        assert self.gathered is not None, "it has begun"
        self.gathered.finish()
        for parameter, handle in zip(self.parameters, self._handles, strict=True):
            parameter.register(handle)

    def reshard(self) -> Gathered | None:
        """Let the modules have the parts; returns what they had, whose arrays the tape may still need."""
        gathered, self.gathered, self._handles = self.gathered, None, []
        for parameter in self.parameters:
            parameter.register(parameter.sharded)
        return gathered

    def leave_forward(self) -> Gathered | None:
        """At the end of a module's forward pass: reshard, if it does; returns what was released."""
        if self.reshards_after_forward is False:
            return None
        gathered = self.reshard()
        if gathered is not None:
            gathered.on_return = self.on_return
            self.released = weakref.ref(gathered)
            _release_when_computed(gathered)
        return gathered

    # --- backward passes ---

    def begin_backward(self) -> None:
        """At the start of a backward pass."""
        self._reached = False

    def _differentiate(self, gathered: Gathered, cotangents: dict[int, Value]) -> list[Value | None]:
        """The gradients of the parts, for the optimizer; None for those that are accumulated first."""
        if ambient().grad:
            raise GradientError("create_graph=True: the gradients of fully sharded parameters have no derivative")
        self.on_backward()
        # The gradients of all parameters of the group are there, so nothing of this pass reads the whole ones again.
        if self.reshards_after_backward:
            if self.gathered is gathered:
                self.reshard()
            _release_when_computed(gathered)
        gradients = {at: wrap(cotangent) for at, cotangent in cotangents.items()}
        results: list[Value | None] = [None] * len(self.parameters)
        for at, part in self._reduced(gradients).items():
            results[at] = part._read()
        return results

    def _reduced(self, gradients: dict[int, Tensor]) -> dict[int, Tensor]:
        """This rank's parts of the reduced gradients by position, or nothing if they are accumulated."""
        with own_program():
            if not self.reduces:
                for at, gradient in gradients.items():
                    parameter = self.parameters[at]
                    parameter.accumulated = self._sum(parameter.accumulated, gradient)
                flush_pending()  # pending sums would keep the passes that they come from
                return {}
            self._reached = True
            sums = {at: self._take_sum(one, gradients.get(at)) for at, one in enumerate(self.parameters)}
            due = {at: total for at, total in sums.items() if total is not None}
            if not due:
                return {}
            parts = self.reduction.reduced([self.parameters[at] for at in due], list(due.values()))
            flush_pending()
            return {at: part for at, part in zip(due, parts, strict=True) if part is not None}

    def _sum(self, accumulated: Tensor | None, gradient: Tensor) -> Tensor:
        # Sums over several passes in 16-bit types would lose what the reduction's type keeps.
        gradient = gradient.to(self.policy.reduce_dtype or gradient.dtype)
        return gradient if accumulated is None else accumulated + gradient

    def _take_sum(self, parameter: ShardedParameter, gradient: Tensor | None) -> Tensor | None:
        """The gradient of a pass and those accumulated before it, which are forgotten; None if there is none."""
        before, parameter.accumulated = parameter.accumulated, None
        if before is not None:
            return before if gradient is None else self._sum(before, gradient)
        # All ranks must send buffers of one size, whether or not their loss has reached the parameter.
        if gradient is None and self.reduces_unused and parameter.sharded.requires_grad:
            dtype = parameter.dtype_in(self.policy.param_dtype)
            return zeros(parameter.slot.shape, dtype=dtype, device=parameter.sharded.device)
        return gradient

    def end_backward(self, *, is_last: bool) -> None:
        """At the end of a backward pass: reduce what was accumulated and has not been reached, and reshard."""
        waits = any(parameter.accumulated is not None for parameter in self.parameters)
        # Gradients of earlier passes without reduction wait here although no gradient of this pass has come.
        if self.reduces and not self._reached and (waits or self.reduces_unused):
            for at, part in self._reduced({}).items():
                role = self.parameters[at].sharded._read().role
                if isinstance(role, Leaf):
                    accumulate(role, part._read(), create_graph=False)
        if is_last and self.reshards_after_backward:
            gathered = self.reshard()
            if gathered is not None:
                _release_when_computed(gathered)

    def reset(self) -> None:
        """Forget the gradients of an iteration that has failed, and reshard."""
        gathered = self.reshard()
        if gathered is not None:
            gathered.release()
        for parameter in self.parameters:
            parameter.accumulated = parameter.reduced = None


def _release_when_computed(gathered: Gathered) -> None:
    """Release the arrays after what was recorded with them has been computed: now, unless it must stay pending."""
    # Programs that are recorded and not computed yet still read the arrays.
    ambient().pending.when_computed.append(gathered.release)
    flush_pending()
