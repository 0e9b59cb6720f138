"""Gradient checkpointing: computing a part of the forward pass again in the backward pass, to save memory."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from weft._base.cell import LocalCell
from weft._base.state import Pending, ambient, using
from weft._base.types import AnyCallable, Arg, Args, Result
from weft._lazy.flushing import flush_pending
from weft._lazy.outline import has_user_derivatives, outline
from weft._lazy.record import record
from weft._tensor.saved import Packing
from weft._tensor.tensor import Tensor, wrap
from weft.errors import RecomputationError as CheckpointError
from weft.errors import ValueRangeError
from weft.random import get_rng_state, set_rng_state
from weft.utils._recompute import Recomputation
from weft.utils._selective import CheckpointPolicy as CheckpointPolicy
from weft.utils._selective import Selection
from weft.utils._selective import SelectiveCheckpointContext as SelectiveCheckpointContext
from weft.utils._selective import create_selective_checkpoint_contexts as create_selective_checkpoint_contexts

__all__ = [
    "CheckpointError",
    "CheckpointPolicy",
    "SelectiveCheckpointContext",
    "check_backward_validity",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "detach_variable",
    "get_device_states",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
    "set_device_states",
]

Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]

_debug = LocalCell[bool | None]("whether checkpoints are compared", None)
_early_stop = LocalCell[bool | None]("whether checkpoints stop early", None)


def noop_context_fn() -> Contexts:
    """Contexts that do nothing: the default of `checkpoint`."""
    return nullcontext(), nullcontext()


def checkpoint(
    function: AnyCallable,
    *args: Arg,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], Contexts] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    preserve_rng_state: bool = True,
    **kwargs: Arg,
) -> Result:
    """`function(*args, **kwargs)`, of which only the inputs are kept; the backward pass computes the rest again.

    Inputs are all tensors that the function reads, including parameters that are not arguments. Random draws are
    repeated. An optimization barrier prevents the compiler from sharing the two computations. If there are hooks or
    `autograd.Function`s inside, everything is kept instead. `use_reentrant` is accepted for compatibility and has no
    effect.

    What was recorded is computed again, so the function is called once, and cannot do something else the second time.
    If `context_fn` returns contexts that are not those of `create_selective_checkpoint_contexts`, it is called again in
    the second of them, as in PyTorch: the other options are for this. The backward pass raises `CheckpointError` if the
    call saves another number of tensors, or tensors of other types unless `determinism_check` is "none". With
    `early_stop`, it ends when all is there. Without `preserve_rng_state`, random draws differ.

    `ValueError` for another `determinism_check`, and for `debug` with `context_fn`.
    """
    contexts = _contexts(context_fn, use_reentrant, determinism_check, debug)
    state = ambient()
    if not state.grad:
        return function(*args, **kwargs)
    selection = contexts[0] if contexts is not None and isinstance(contexts[0], Selection) else None
    if contexts is not None and selection is None:
        stop = _early_stop.get()
        again = Recomputation(
            function,
            args,
            kwargs,
            contexts[1],
            checks=determinism_check != "none",
            early_stop=early_stop if stop is None else stop,
            preserves_random=preserve_rng_state,
        )
        with again.packing(), contexts[0]:
            return function(*args, **kwargs)
    if state.watchers.eager:
        return function(*args, **kwargs)
    region = Pending(sys.maxsize)
    region.kept = True
    packing = tuple([each for each in state.watchers.observers if isinstance(each, Packing)])
    unpacked = tuple([each for each in state.watchers.observers if each not in packing])
    with using(pending=region, observers=unpacked), nullcontext() if selection is None else selection:
        results = function(*args, **kwargs)
    result_list: Sequence[Any] = results if isinstance(results, (tuple, list)) else [results]
    smooth = [r for r in result_list if isinstance(r, Tensor) and r.requires_grad and not r.is_leaf]
    if not smooth or has_user_derivatives(region):
        _absorb(region)
        return results
    saved = [] if selection is None else selection.saved
    signature, inputs = outline(
        [r._read() for r in smooth], region, f"checkpointed {_name(function)}", barrier=True, saved=saved
    )
    with using(observers=packing):  # the others have seen the operators of the region
        values = record(signature, tuple(inputs), ambient())
    fresh = {id(r): wrap(v) for r, v in zip(smooth, values, strict=True)}
    replaced = [fresh.get(id(r), r) for r in result_list]
    _absorb(region)
    if not isinstance(results, (tuple, list)):
        return replaced[0]
    make: Any = getattr(results, "_make", type(results))  # the constructor of a named tuple takes separate fields
    return make(replaced)


def _contexts(
    context_fn: Callable[[], Contexts], use_reentrant: bool | None, determinism_check: str, debug: bool
) -> Contexts | None:
    """The contexts that a caller wants; None for the default. `ValueError` for options that do not go together."""
    if use_reentrant and (context_fn is not noop_context_fn or debug):
        raise ValueRangeError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
    if determinism_check not in ("default", "none"):
        raise ValueRangeError(f"determinism_check should be one of ['default', 'none'], but got {determinism_check}")
    if context_fn is noop_context_fn:
        return None
    always = _debug.get()
    if debug if always is None else always:
        raise ValueRangeError("debug=True is incompatible with non-default context_fn")
    return context_fn()


def _absorb(region: Pending) -> None:
    """Hand over what was recorded; it is computed now if something inside waits for that."""
    ambient().pending.absorb(region)
    if region.when_computed:
        flush_pending()


def _name(function: AnyCallable) -> str:
    return getattr(function, "__name__", type(function).__name__)


@contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """A block that sets `debug` for all checkpoints; None leaves it to them.

    It shows nothing: what was recorded cannot differ when it is computed again.
    """
    with _debug.within(enabled):
        yield


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """A block that sets `early_stop` for all checkpoints whose forward pass runs in it."""
    with _early_stop.within(enable):
        yield


def detach_variable(inputs: Args) -> Args:
    """Leaves with the elements of tensors, which require gradients where these do; `RuntimeError` for no tuple."""
    if not isinstance(inputs, tuple):
        raise CheckpointError(
            f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}"
        )
    return tuple([x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs])


def check_backward_validity(inputs: Iterable[object]) -> None:
    """Warn if no tensor among `inputs` requires a gradient."""
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


def checkpoint_sequential(
    functions: Sequence[AnyCallable], segments: int, input: Arg, use_reentrant: bool | None = None, **kwargs: Arg
) -> Result:
    """Run a chain of functions in `segments` parts; all parts but the last are checkpointed.

    The only other option is `preserve_rng_state`. `ValueError` unless each part has a function.
    """
    surplus = [name for name in kwargs if name != "preserve_rng_state"]
    if surplus:
        raise ValueRangeError(f"Unexpected keyword arguments: {', '.join(surplus)}")
    chain = list(functions.children()) if hasattr(functions, "children") else list(functions)  # pyright: ignore[reportAttributeAccessIssue]
    if not 1 <= segments <= len(chain):
        raise ValueRangeError(
            f"checkpoint_sequential: expected from 1 segment to {len(chain)}, the number of functions, got {segments}"
        )
    size = len(chain) // segments

    def run(start: int, end: int) -> Result:
        def part(x: Arg) -> Result:
            for function in chain[start:end]:
                x = function(x)
            return x

        return part

    for start in range(0, size * (segments - 1), size):
        input = checkpoint(run(start, start + size), input, use_reentrant=use_reentrant, **kwargs)
    return run(size * (segments - 1), len(chain))(input)


def get_device_states(*args: object) -> tuple[list[int], list[Tensor]]:
    """The accelerators on which there are tensors among the arguments, and the states of their generators."""
    devices = sorted(
        {x.device for x in args if isinstance(x, Tensor) and x.device.type not in ("cpu", "meta")}, key=str
    )
    return [device.index or 0 for device in devices], [get_rng_state() for _ in devices]


def set_device_states(devices: Sequence[int], states: Sequence[Tensor], *, device_type: str | None = None) -> None:
    """Set the states that `get_device_states` has given: all devices have one generator."""
    del devices, device_type
    for state in states[:1]:
        set_rng_state(state)
