"""Trading computation for memory: recompute a part of the forward pass in the backward pass."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from weft._base.state import Pending, ambient, using
from weft._lazy.outline import has_user_derivatives, outline
from weft._lazy.record import record
from weft._tensor.tensor import Tensor, wrap


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, keeping only its inputs for the backward pass, which computes the rest again.

    Inputs are all tensors that the function reads, also parameters that are no arguments. Random draws repeat. An
    optimisation barrier keeps the compiler from sharing the two computations. Where hooks or `autograd.Function`s are
    inside, everything is kept instead. `use_reentrant` and `preserve_rng_state` are accepted for compatibility: there
    is one implementation, and draws always repeat.
    """
    del use_reentrant, preserve_rng_state
    state = ambient()
    if not state.grad or state.eager:
        return function(*args, **kwargs)
    region = Pending()
    region.limit = sys.maxsize
    with using(pending=region):
        results = function(*args, **kwargs)
    result_list: Sequence[Any] = results if isinstance(results, (tuple, list)) else [results]
    smooth = [r for r in result_list if isinstance(r, Tensor) and r.requires_grad and not r.is_leaf]
    if not smooth or has_user_derivatives(region):
        state.pending.absorb(region)
        return results
    signature, inputs = outline([r._read() for r in smooth], region, f"checkpointed {_name(function)}", barrier=True)
    values = record(signature, tuple(inputs), state)
    fresh = {id(r): wrap(v) for r, v in zip(smooth, values, strict=True)}
    replaced = [fresh.get(id(r), r) for r in result_list]
    state.pending.absorb(region)
    if not isinstance(results, (tuple, list)):
        return replaced[0]
    make: Any = getattr(results, "_make", type(results))  # a named tuple takes its fields one by one
    return make(replaced)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def checkpoint_sequential(
    functions: Sequence[Callable[..., Any]], segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Run a chain of functions in `segments` parts, each but the last checkpointed."""
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
