"""Running what a flush has planned, and storing the results.

A planned batch is one program. A few small applications need no plan: they are computed one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import jax
import numpy as np

from weft._base.device import CPU
from weft._base.timeline import Listeners, Phase, tell
from weft._base.types import AnyArray
from weft._lazy.callbacks import failure_behind
from weft._lazy.interpreted import LEAST_PROGRAM, costs_of, evaluated
from weft._lazy.interpreter import quiet
from weft._lazy.ledger import ledgers, note_run
from weft._lazy.lost import is_lost
from weft._lazy.plan import Batch, planning
from weft._lazy.program import Run, execute
from weft._lazy.runtime import is_exhaustion, raise_if_exhausted, tier_of
from weft._lazy.value import NO_DATA, PENDING, Doubtful, Value, is_taped

_FEW = 16  # operators that may be quicker computed than planned


def run(batch: Batch) -> None:
    """Run the program of a batch, and give its outputs their arrays; after an error they are pending again."""
    arrays, batch.arrays = batch.arrays, []  # so that the program alone holds what it may overwrite
    try:
        results = execute(batch.program, batch.graph, arrays)
        if batch.program.waits:
            for result in results:
                if isinstance(result, jax.Array):
                    result.block_until_ready()
    except BaseException as error:
        _release(batch)
        _raise_cause(batch, error)
        raise
    else:
        _store(batch, results)
    finally:
        batch.computing.done.set()


def _store(batch: Batch, results: Sequence[AnyArray]) -> None:
    doubts = batch.doubts
    for value, array in zip(batch.outputs, results, strict=True):
        value.content = Doubtful(array, doubts[value]) if value in doubts else array
    for value in batch.outputs:  # only now: what dies with the inputs may have a finalizer that reads the outputs
        forget_inputs(value)
    if ledgers:
        note_run(batch.program.bytes_at_once, batch.graph.inputs, batch.outputs)


def _release(batch: Batch) -> None:
    """Make the outputs that the batch has claimed pending, so that a later read tries again."""
    for value in batch.outputs:
        if value.content is batch.computing:
            value.content = PENDING


def _raise_cause(batch: Batch, error: BaseException) -> None:
    """Raise what is behind an error of a program, if that says more: a user's error, or that memory was exhausted."""
    if batch.program.calls_back and (failure := failure_behind(error)) is not None:
        raise failure from None
    if is_exhaustion(error):
        large = _largest(batch.graph.nodes)
        for act in _on_exhausted:
            act(large)
        raise_if_exhausted(error, batch.program.device, large)


def _largest(values: Sequence[Value]) -> list[Value]:
    """The values that are at least half as large as the largest one: most likely there was no memory for these."""
    most = max([value.aval.nbytes for value in values])
    return [value for value in values if 2 * value.aval.nbytes >= most]


# no cell: filled when the library is imported
_on_exhausted: list[Callable[[Sequence[Value]], None]] = []


def on_exhausted(act: Callable[[Sequence[Value]], None]) -> None:
    """Call `act(values)` when there is no memory for these values of a program, before the error is raised."""
    _on_exhausted.append(act)


def computed_at_once(values: list[Value]) -> bool:
    """Compute a few small applications one by one, which is faster than planning; False if anything is left to plan.

    Inputs that are missing or lost, and exhausted memory, are left to planning and `run`, which make them good.
    """
    if len(values) > _FEW:
        return False
    try:
        return _are_quick(values) and (_evaluated_as_span(values) if Listeners.all else _evaluated(values))
    except MemoryError:
        return False
    except RuntimeError:
        if not any(is_lost(x.available) for value in values for x in value.inputs):
            raise
        return False


def _are_quick(values: Sequence[Value]) -> bool:
    """Whether interpreting these takes less than starting a program would, and needs nothing that plans are for."""
    if tier_of(CPU) == "compiled":
        return False
    seconds = 0.0
    for value in values:
        origin = value.origin
        assert origin is not None, "a pending value has an origin"
        signature = origin.signature
        if origin.aval.device is not CPU or len(signature.outputs) > 1:
            return False
        if signature.requirement is not None and (value.doubt is None or not value.doubt.check.passed):
            return False
        costs = signature.execution.costs or costs_of(signature)
        seconds += costs.interpreting
        if seconds > LEAST_PROGRAM:
            return False
        for x in value.inputs:
            if not isinstance(x.content, np.ndarray):  # a method's call less for most inputs
                x.at_hand()  # waits for what may run code of the user's, which no lock must be held for
    return True


def _evaluated(values: Sequence[Value]) -> bool:
    """Compute applications one by one; False if the input of one is not in memory."""
    # The lock keeps another thread from planning the same values; it is held for microseconds (`LEAST_PROGRAM`).
    with planning, quiet():
        for value in values:
            if value.content is PENDING:  # another thread may have computed it since it was taken
                array = evaluated(value.origin, value.inputs)  # pyright: ignore[reportArgumentType]
                if array is None:
                    return False
                value.content = array
                forget_inputs(value)
    if ledgers and values:
        note_run(0, (), values)
    return True


def _evaluated_as_span(values: Sequence[Value]) -> bool:
    """`_evaluated`, as a span of the timeline."""
    applications = [(value.origin.signature, value.time) for value in values if value.origin is not None]
    start = time.perf_counter_ns()
    is_computed = _evaluated(values)
    tell(Phase.INTERPRETING, f"{len(values)} operators", start, Run(applications if is_computed else (), ()))
    return is_computed


def forget_inputs(value: Value) -> None:
    """Drop the inputs of a computed value, unless a backward pass may need them."""
    if not is_taped(value):
        value.inputs = ()
        value.extras = ()


def leave_without_data(values: Sequence[Value]) -> None:
    """End the wait of values on the meta device, which nothing computes."""
    for value in values:
        value.content = NO_DATA
        forget_inputs(value)
