"""Checkpoints that call their function again in the backward pass, within a context of the caller's."""

from __future__ import annotations

import weakref
from contextlib import AbstractContextManager
from typing import Any

from weft._autograd.engine import BackwardPass, current_pass
from weft._autograd.graph import links_to
from weft._base.state import ambient, using
from weft._base.types import AnyCallable, Arg, Args, Kwargs
from weft._tensor.codegen import op
from weft._tensor.generator import default_generator
from weft._tensor.saved import Packing, SavedTensor
from weft._tensor.tensor import Tensor
from weft.errors import RecomputationError


class Recomputation:
    """A call of a function that is repeated when a backward pass reads what it has saved.

    types    shape, element type and device of each saved tensor, in order
    results  the saved tensors by the pass that has computed them again
    """

    def __init__(
        self,
        function: AnyCallable,
        args: Args,
        kwargs: Kwargs,
        context: AbstractContextManager[object],
        *,
        checks: bool,
        early_stop: bool,
        preserves_random: bool,
    ) -> None:
        """`context` is entered when the function is called again; `checks` compares what it saves with `types`."""
        self._function = function
        self._args = [_saved(x) if isinstance(x, Tensor) else x for x in args]
        self._kwargs = kwargs
        self._context = context
        self._checks = checks
        self._early_stop = early_stop
        self._random = default_generator.state() if preserves_random else None
        self._autocast = ambient().autocast
        self._types: list[tuple[Any, ...]] = []
        self._results: weakref.WeakKeyDictionary[BackwardPass, list[Tensor]] = weakref.WeakKeyDictionary()

    def packing(self) -> using:
        """The block for the first call, which saves nothing but numbers."""
        return _within(Packing(self._pack, self._unpack))

    def _pack(self, tensor: Tensor) -> int:
        self._types.append(_type_of(tensor))
        return len(self._types) - 1

    def _unpack(self, number: int) -> Tensor:
        running = current_pass()
        if running is None:
            return self._call_again()[number]
        if running not in self._results:
            self._results[running] = self._call_again()
        return self._results[running][number]

    def _call_again(self) -> list[Tensor]:
        """The tensors that the function saves, by another call."""
        saved: list[Tensor] = []

        def pack(tensor: Tensor) -> Tensor:
            saved.append(tensor.detach())
            # All that the backward pass asks for is there; what follows would be computed for nothing.
            if self._early_stop and len(saved) == len(self._types):
                raise _Complete
            return tensor

        before = default_generator.state()
        try:
            if self._random is not None:
                # Dropout must drop the same elements as in the first call.
                default_generator.restore(self._random)
            with using(grad=True, autocast=self._autocast):
                # Without the barrier XLA sees that both calls compute the same, and keeps the results of the first one.
                args = _behind_a_barrier([x.unpack() if isinstance(x, SavedTensor) else x for x in self._args])
                with _within(Packing(pack, lambda tensor: tensor)), self._context:
                    self._function(*args, **self._kwargs)
        except _Complete:
            pass
        finally:
            if self._random is not None:
                default_generator.restore(before)
        self._check(saved)
        return saved

    def _check(self, saved: list[Tensor]) -> None:
        if len(saved) != len(self._types):
            raise RecomputationError(
                "torch.utils.checkpoint: A different number of tensors was saved during the original forward and "
                f"recomputation.\nNumber of tensors saved during forward: {len(self._types)}\nNumber of tensors saved "
                f"during recomputation: {len(saved)}."
            )
        differing = [
            f"tensor at position {at}:\nsaved metadata: {_described(before)}\n"
            f"recomputed metadata: {_described(_type_of(tensor))}\n"
            for at, (before, tensor) in enumerate(zip(self._types, saved, strict=True))
            if self._checks and before != _type_of(tensor)
        ]
        if differing:
            raise RecomputationError(
                "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than "
                f"during the forward pass.\n{''.join(differing)}"
            )


class _Complete(Exception):
    """Raised in the function that is called again, when all that is needed is there."""


def _within(packing: Packing) -> using:
    return using(observers=(*[each for each in ambient().watchers.observers if not isinstance(each, Packing)], packing))


def _saved(tensor: Tensor) -> SavedTensor:
    value = tensor._read()
    return SavedTensor(value, None if value.role is None else links_to((value,))[0], tensor)


def _behind_a_barrier(args: list[Arg]) -> list[Arg]:
    """The arguments, such that the compiler computes nothing once for both calls."""
    tensors = [x for x in args if isinstance(x, Tensor)]
    if not tensors:
        return args
    results = op.optimization_barrier(tensors)
    passed = iter([results] if isinstance(results, Tensor) else results)
    return [next(passed) if isinstance(x, Tensor) else x for x in args]


def _type_of(tensor: Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.dtype, tensor.device


def _described(kind: tuple[object, ...]) -> str:
    return str(dict(zip(("shape", "dtype", "device"), kind, strict=True)))
