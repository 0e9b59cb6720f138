"""What `fully_shard` does around the calls of a module."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial

import jax

from weft._autograd.engine import queue_callback
from weft._base.dtype import DType
from weft._base.types import Arg, PyTree
from weft._tensor.tensor import Tensor
from weft.distributed.fsdp._gathered import Gathered
from weft.distributed.fsdp._group import ParameterGroup
from weft.distributed.fsdp._policies import MixedPrecisionPolicy
from weft.errors import DistError, PreconditionError
from weft.nn import Module


class Iteration:
    """What the modules of one model share: the order of their forward passes, and the end of the backward pass.

    states  those of all modules, the outermost first
    root    the one whose forward pass is running
    """

    def __init__(self) -> None:
        self.states: list[ShardState] = []
        self.root: ShardState | None = None
        self.is_last_backward = True
        self._released: list[weakref.ref[Gathered]] = []  # in the order of forward passes
        self._ends = False  # whether the end of this backward pass has been announced

    def begin_forward(self) -> None:
        """At the start of a forward pass of the model."""
        self._ends = False
        self._released = [ref for ref in self._released if ref() is not None]

    def released(self, gathered: Gathered) -> None:
        """Remember what was released by a forward pass, to gather it early in the backward pass."""
        self._released.append(weakref.ref(gathered))

    def prefetch_before(self, gathered: Gathered) -> None:
        """Start to gather what the backward pass will need after this: what was released before it."""
        at = next((at for at, ref in enumerate(self._released) if ref() is gathered), 0)
        if at and (before := self._released[at - 1]()) is not None:
            before.begin(async_op=True)

    def begin_backward(self) -> None:
        """When gradients arrive."""
        if not self._ends:
            self._ends = True
            for group in self._groups():
                group.begin_backward()
            # Parameters that the loss does not reach call no hook, so the end of the pass is the only place to reshard
            # them.
            queue_callback(self._end_backward)

    def _end_backward(self) -> None:
        self._ends = False
        for group in reversed(self._groups()):
            group.end_backward(is_last=self.is_last_backward)
        if self.is_last_backward:
            self._released.clear()

    def _groups(self) -> list[ParameterGroup]:
        return [group for state in self.states for group in state.groups]


class ShardState:
    """The sharding of one module, or of several that are gathered together."""

    def __init__(
        self, modules: Sequence[Module], groups: Sequence[ParameterGroup], policy: MixedPrecisionPolicy, *, auto: bool
    ) -> None:
        self.modules = list(modules)
        self.groups = list(groups)
        self.policy = policy
        self.keeps_as_root = auto  # whether it is not resharded after forward if it is the root
        self.is_root: bool | None = None  # unknown until the first forward pass
        self.iteration = Iteration()
        self.forward_prefetch: list[ShardState] = []
        self.backward_prefetch: list[ShardState] = []
        self._running: list[Module] = []  # calls that have not returned, the innermost last
        self._ran: set[Module] = set()  # since the parameters were gathered
        owners = {module for group in groups for p in group.parameters for module, _ in p.owners}
        for module in owners:
            module.register_state_dict_pre_hook(self._before_state_dict)
            module.register_load_state_dict_pre_hook(self._before_state_dict)
        for module in modules:
            module.register_forward_pre_hook(self.before_forward, prepend=True, with_kwargs=True)
            module.register_forward_hook(self.after_forward, always_call=True)

    @property
    def is_running(self) -> bool:
        """Whether a call of its modules has not returned."""
        return bool(self._running)

    def begin(self) -> None:
        """Before the first forward pass: this is the root of all modules below it."""
        if self.is_root is not None:
            return
        if len(self.modules) > 1:
            raise DistError(f"FSDP requires a single root module but got {self.modules}")
        states = _states_below(self.modules[0])
        for group in [group for state in states for group in state.groups]:
            group.require_one_dtype()
        _require_elements(self.modules[0], states)
        # The backward pass begins with the root's parameters, so releasing them after the forward pass would gather
        # them again at once.
        if self.keeps_as_root:
            for group in self.groups:
                group.reshards_after_forward = False
        for state in states:
            state.is_root = state is self
            state.iteration = self.iteration
            for group in state.groups:
                group.on_backward = self.iteration.begin_backward
                group.on_return = state._prefetch
        self.iteration.states = states

    # --- around a call ---

    def before_forward(self, module: Module, args: Arg, kwargs: Arg) -> tuple[Arg, Arg]:
        """Gather the parameters; returns the arguments, cast if the policy says so."""
        self.begin()
        if self.iteration.root is None:
            self.iteration.root = self
            self.iteration.begin_forward()
        for group in self.groups:
            group.unshard()
        if not self._running and not self._ran:
            for state in self.forward_prefetch:
                for group in state.groups:
                    group.begin(async_op=True)
        self._running.append(module)
        if self.policy.cast_forward_inputs and self.policy.param_dtype is not None:
            return _cast((args, kwargs), self.policy.param_dtype)
        return args, kwargs

    def after_forward(self, module: Module, args: Arg, output: PyTree) -> PyTree:
        """Release the parameters; returns the output, cast if the policy says so. Also after an error, with None."""
        del args
        # The hook is also called after an error, of calls that had not begun.
        if module not in self._running:
            return output
        self._running.remove(module)
        self._ran.add(module)
        if not self._running and self._ran.issuperset(self.modules):
            self._leave()
        if self.iteration.root is self and not self._running:
            self.iteration.root = None
            # A group of several modules of which only some have run is still whole.
            for state in self.iteration.states:
                if state._ran:
                    state._leave()
        return output if self.policy.output_dtype is None else _cast(output, self.policy.output_dtype)

    def _leave(self) -> None:
        self._ran.clear()
        for group in self.groups:
            gathered = group.leave_forward()
            if gathered is not None:
                self.iteration.released(gathered)

    def _prefetch(self, gathered: Gathered) -> None:
        """What is to be gathered next in a backward pass that gathers this."""
        if not self.backward_prefetch:
            self.iteration.prefetch_before(gathered)
            return
        for group in [group for state in self.backward_prefetch for group in reversed(state.groups)]:
            released = group.released and group.released()
            if released is not None:
                released.begin(async_op=True)

    def _before_state_dict(self, *args: Arg) -> None:
        """State dicts have the parts."""
        del args
        # Whole parameters would be saved as if each rank had its own.
        self.reshard()

    def reshard(self) -> None:
        """Let the modules have the parts."""
        for group in self.groups:
            gathered = group.reshard()
            if gathered is not None:
                gathered.release()

    def reset(self) -> None:
        """Forget an iteration that has failed; `RuntimeError` if this is not the root."""
        if not self.is_root:
            raise DistError("reset_iter_state must be called on the root FSDP module")
        self.iteration.root = None
        self.iteration.begin_forward()
        for state in self.iteration.states:
            state._running.clear()
            state._ran.clear()
            for group in state.groups:
                group.reset()


def state_of(module: object) -> ShardState | None:
    """The state of a module that was sharded by itself, or None."""
    return vars(module).get("_fsdp_state")


def require_state(module: object) -> ShardState:
    """The state of a module that was sharded by itself."""
    state = state_of(module)
    if state is None:
        raise PreconditionError(f"No FSDP state found on {module}")
    return state


def _states_below(root: Module) -> list[ShardState]:
    """The states of a module and of those below it; `RuntimeError` if one has been the root of a forward pass."""
    states: list[ShardState] = []
    for name, module in root.named_modules():
        state = state_of(module)
        if state is None or state in states:
            continue
        if module is not root and state.is_root is not None:
            raise DistError(
                f"FSDP state has already been lazily initialized for {name}\nFSDP requires running forward through the "
                "root module first"
            )
        states.append(state)
    return states


def _require_elements(root: Module, states: Sequence[ShardState]) -> None:
    """`RuntimeError` if sharded parameters are still on the meta device."""
    owners = {owner for state in states for group in state.groups for p in group.parameters for owner in p.owners}
    names = [
        f"{path}.{name}" if path else name
        for path, module in root.named_modules()
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.is_meta and (module, name) in owners
    ]
    if names:
        raise DistError(
            "FSDP parameters should be materialized from meta device before training, but the following were still on "
            f"meta device: {names}\nFor example, call module.to_empty(device=...) to materialize to device and call "
            "module.reset_parameters() on each module to initialize values."
        )


def _cast(structure: PyTree, dtype: DType) -> PyTree:
    """The structure, with floating tensors in another type."""
    return jax.tree.map(partial(_cast_one, dtype), structure)


def _cast_one(dtype: DType, x: object) -> object:
    return x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x
