"""Selective checkpointing: which operators' results a checkpointed region keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from typing import Any

from weft._autograd.node import backward_name, snake_case
from weft._base.state import ambient, enter, leave, using
from weft._base.types import Arg
from weft._lazy.call import arguments_of
from weft._lazy.value import Value
from weft._tensor.kind_names import kind_of
from weft._tensor.tensor import wrap
from weft.errors import ArgumentError, ValueRangeError
from weft.ops._aten import FormOfPacket
from weft.ops._namespaces import OpOverload, OpOverloadPacket


class CheckpointPolicy(Enum):
    """What a policy says of an operator: whether its results are kept, or computed again in the backward pass.

    There is no difference between MUST and PREFER. On the CPU there is none between saving and offloading.
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


_RECOMPUTED = (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)


class SelectiveCheckpointContext:
    """What a policy is told of a call: its result. `is_recompute` is False, as in PyTorch."""

    def __init__(self, *, is_recompute: bool, op_output: object = None) -> None:
        self.is_recompute = is_recompute
        self.op_output = op_output


Policy = Callable[..., CheckpointPolicy | bool]


class Selection:
    """The block in which a region is recorded; `saved` are the values that the policy has chosen so far."""

    def __init__(self, policy: Policy) -> None:
        self.saved: list[Value] = []
        self._policy = policy
        self._tokens: list[Any] = []

    def __enter__(self) -> Selection:
        self._tokens.append(enter(observers=(*ambient().watchers.observers, self._choose)))
        return self

    def __exit__(self, *_: object) -> None:
        leave(self._tokens.pop())

    def _choose(self, values: tuple[Value, ...]) -> None:
        """Ask the policy about an application, outside of the tape and unobserved."""
        call = _call_of(values)
        if call is None:
            return
        op, args = call
        outputs = [wrap(value) for value in values]
        with using(grad=False, observers=()):
            context = SelectiveCheckpointContext(
                is_recompute=False, op_output=outputs[0] if len(outputs) == 1 else tuple(outputs)
            )
            policy = self._policy(context, op, *args)
        if isinstance(policy, bool):
            policy = CheckpointPolicy.MUST_SAVE if policy else CheckpointPolicy.PREFER_RECOMPUTE
        if policy not in _RECOMPUTED:
            self.saved.extend(values)


def _call_of(values: tuple[Value, ...]) -> tuple[OpOverload, list[Arg]] | None:
    """The operator that has made values, and its arguments; None for what is no operator of the table."""
    head = values[0]
    if head.origin is None or head.origin.signature.call is None:
        return None
    args = arguments_of(head.origin.signature.call, [x.number if x.aval.weak else wrap(x) for x in head.inputs])
    return FormOfPacket(snake_case(backward_name(head))).default, args


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Policy | Sequence[OpOverload], allow_cache_entry_mutation: bool = False
) -> tuple[AbstractContextManager[object], AbstractContextManager[object]]:
    """The contexts that `checkpoint(context_fn=...)` takes, to keep the results of some operators.

    A policy is called as `policy(context, op, *args)` for each operator of the region, and returns a
    `CheckpointPolicy`. A list names the operators to save, such as `weft.ops.aten.mm.default`.
    `allow_cache_entry_mutation` is accepted: values are immutable, so writes do not reach what is kept.

    `ValueError` for anything else in a list, `TypeError` for another argument.
    """
    del allow_cache_entry_mutation
    if isinstance(policy_fn_or_list, list):
        saved: list[Any] = policy_fn_or_list
        for op in saved:
            if not isinstance(op, OpOverload):
                advice = (
                    "Please update the OpOverloadPacket to a specific OpOverload. For example, if you have "
                    "`torch.ops.aten.mm`, change it to `torch.ops.aten.mm.default`."
                )
                raise ValueRangeError(
                    f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}. "
                    f"{advice if isinstance(op, OpOverloadPacket) else ''}"
                )
        return Selection(lambda context, op, *_: op in saved), nullcontext()
    if not callable(policy_fn_or_list):
        raise ArgumentError(
            f"policy_fn_or_list must be either a function or a list of ops, got {kind_of(policy_fn_or_list)}"
        )
    return Selection(policy_fn_or_list), nullcontext()
