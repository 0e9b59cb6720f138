"""Gradient checkpointing: computing a part of the forward pass again in the backward pass, to save memory."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum
from typing import Any

from weft._base.state import Pending, ambient, using
from weft._lazy.outline import has_user_derivatives, outline
from weft._lazy.realize import flush_pending
from weft._lazy.record import record
from weft._tensor.tensor import Tensor, wrap
from weft.errors import OutOfRangeError
from weft.random import get_rng_state, set_rng_state


def noop_context_fn() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Two contexts that change nothing."""
    return nullcontext(), nullcontext()


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, of which only the inputs are kept; the backward pass computes the rest again.

    Inputs are all tensors that the function reads, including parameters that are not arguments. Random draws are
    repeated. An optimization barrier prevents the compiler from sharing the two computations. If there are hooks or
    `autograd.Function`s inside, everything is kept instead. `function` runs in the first of the contexts from
    `context_fn`; Python runs it once, so the second one is never entered. The other options are accepted for
    compatibility and have no effect.
    """
    del use_reentrant, preserve_rng_state, determinism_check, debug, early_stop
    around = nullcontext() if context_fn is noop_context_fn else context_fn()[0]
    with around:
        return _checkpointed(function, args, kwargs)


def _checkpointed(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    state = ambient()
    if not state.grad or state.eager:
        return function(*args, **kwargs)
    region = Pending()
    region.limit, region.kept = sys.maxsize, True
    with using(pending=region):
        results = function(*args, **kwargs)
    result_list: Sequence[Any] = results if isinstance(results, (tuple, list)) else [results]
    smooth = [r for r in result_list if isinstance(r, Tensor) and r.requires_grad and not r.is_leaf]
    if not smooth or has_user_derivatives(region):
        _absorb(region)
        return results
    signature, inputs = outline([r._read() for r in smooth], region, f"checkpointed {_name(function)}", barrier=True)
    values = record(signature, tuple(inputs), state)
    fresh = {id(r): wrap(v) for r, v in zip(smooth, values, strict=True)}
    replaced = [fresh.get(id(r), r) for r in result_list]
    _absorb(region)
    if not isinstance(results, (tuple, list)):
        return replaced[0]
    make: Any = getattr(results, "_make", type(results))  # the constructor of a named tuple takes separate fields
    return make(replaced)


def _absorb(region: Pending) -> None:
    """Hand over what was recorded; it is computed now if something inside waits for that."""
    ambient().pending.absorb(region)
    if region.when_computed:
        flush_pending()


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def checkpoint_sequential(
    functions: Sequence[Callable[..., Any]], segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Run a chain of functions in `segments` parts; all parts but the last are checkpointed."""
    chain = list(functions.children()) if hasattr(functions, "children") else list(functions)  # pyright: ignore[reportAttributeAccessIssue]
    size = len(chain) // segments

    def run(start: int, end: int) -> Callable[[Any], Any]:
        def part(x: Any) -> Any:
            for function in chain[start:end]:
                x = function(x)
            return x

        return part

    for start in range(0, size * (segments - 1), size):
        input = checkpoint(run(start, start + size), input, use_reentrant=use_reentrant, **kwargs)
    return run(size * (segments - 1), len(chain))(input)


# --- what programs with checkpoints of their own call -----------------------------------------------------------


class CheckpointFunction:
    """`apply` is `checkpoint` with positional arguments."""

    @staticmethod
    def apply(run_function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        """`run_function(*args)`, checkpointed."""
        return checkpoint(run_function, *args, preserve_rng_state=preserve_rng_state)


class CheckpointPolicy(Enum):
    """What a policy of `create_selective_checkpoint_contexts` says of an operator's results."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Contexts for `context_fn`, which change nothing: everything in a checkpointed region is computed again."""
    del policy_fn_or_list, allow_cache_entry_mutation
    return noop_context_fn()


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Generator[None]:
    """Changes nothing: the backward pass computes what it reads, and no more."""
    del enable
    yield


@contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Generator[None]:
    """Changes nothing: a region is recorded once, so its two computations cannot differ."""
    del enabled
    yield


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs, with tensors detached that ask for gradients as before; `RuntimeError` for anything but a tuple."""
    if not isinstance(inputs, tuple):
        raise OutOfRangeError(
            f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}"
        )
    return tuple(one.detach().requires_grad_(one.requires_grad) if isinstance(one, Tensor) else one for one in inputs)


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn if no input asks for gradients."""
    if not any(one.requires_grad for one in inputs if isinstance(one, Tensor)):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """The devices of tensors that are not on the CPU, and for each the state of the default generator."""
    devices = sorted({one.device.index or 0 for one in args if isinstance(one, Tensor) and one.device.type != "cpu"})
    return devices, [get_rng_state() for _ in devices]


def set_device_states(devices: Sequence[int], states: Sequence[Tensor], *, device_type: str | None = None) -> None:
    """Set the state of the default generator, whose draws are the same on every device."""
    del devices, device_type
    for state in states[:1]:
        set_rng_state(state)
