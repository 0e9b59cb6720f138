"""The end of a step: what is pending is computed as one program, then the step's closures run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from weft._base.guards import is_sequence
from weft._base.state import ambient
from weft._lazy import metrics
from weft._lazy.flushing import flush_pending
from weft.errors import ArgumentError
from weft.xla._closures import ClosureThread
from weft.xla._context import (
    DeviceContext,
    _get_device_context,  # pyright: ignore[reportPrivateUsage]  PyTorch's name
    raise_closure_failures,
)
from weft.xla._flags import flag
from weft.xla._memory import wait_device_ops
from weft.xla._metrics import save_metrics
from weft.xla._ordinals import is_master_ordinal


def mark_step(wait: bool = False, reset_scope: bool = True) -> None:
    """End a step: give the device what this thread has recorded, as one program, and run the step's closures.

    With `wait`, or if `XLA_SYNC_WAIT` is set, it returns when the device has computed everything. `XLA_EMIT_STEPLOG`
    prints a line on stderr at each step. `reset_scope` is accepted and has no meaning here. In a function that
    `compile` captures nothing is computed before its end.

    Optimizers end steps, too, until a thread calls this: from then on it alone says where its steps end.
    """
    del reset_scope
    if flag("XLA_EMIT_STEPLOG"):
        print("torch_xla.core.xla_model::mark_step", file=sys.stderr, flush=True)
    metrics.count("MarkStep")
    ambient().pending.marked = True
    flush_pending()
    if flag("XLA_SYNC_WAIT", default=wait):
        wait_device_ops()
    if is_master_ordinal():
        save_metrics()
    _run_step_closures()


def sync(wait: bool = False, reset_scope: bool = True) -> None:
    """End a step, as `mark_step`."""
    mark_step(wait, reset_scope)


@contextmanager
def step() -> Generator[None]:
    """A block that is a step of its own: it ends what was recorded before it, and what is recorded in it."""
    mark_step()
    try:
        yield
    finally:
        mark_step()


def add_step_closure(closure: Callable[..., object], args: Sequence[object] = (), run_async: bool = False) -> None:
    """Call `closure(*args)` at the end of the step, when all tensors that it refers to are computed.

    So a closure can read values without a program of their own. Those with `run_async` run one after another in a
    thread while the next steps are recorded. If one raises, so does the next call of this, of `mark_step` or of
    `wait_device_ops`; if there is none, the traceback is printed when the process ends. Closures keep the tensors that
    they refer to until then: for reports, add one every few steps only.
    """
    raise_closure_failures()
    if not callable(closure) or not is_sequence(args):
        raise ArgumentError(
            f"add_step_closure: expected a function and a tuple of its arguments, got {closure!r} and {args!r}"
        )
    context = _get_device_context()
    closures = context.async_step_closures if run_async else context.step_closures
    closures.append(lambda: closure(*args))


def _run_step_closures() -> DeviceContext:
    """Start the asynchronous closures of the current device's step, then run the others in order.

    If an earlier asynchronous closure has raised, raises instead, and leaves them all to the next step.
    """
    raise_closure_failures()
    context = _get_device_context()
    started, context.async_step_closures = context.async_step_closures, []
    closures, context.step_closures = context.step_closures, []
    if started:
        if context.async_closure_handler is None:
            context.async_closure_handler = ClosureThread()
        context.async_closure_handler.run(started)
    for closure in closures:
        closure()
    return context
