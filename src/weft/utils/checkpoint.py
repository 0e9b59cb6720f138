"""Gradient checkpointing: computing a part of the forward pass again in the backward pass, to save memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from weft._base.state import Pending, ambient, using
from weft._lazy.outline import has_user_derivatives, outline
from weft._lazy.realize import flush_pending
from weft._lazy.record import record
from weft._tensor.tensor import Tensor, wrap


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, of which only the inputs are kept; the backward pass computes the rest again.

    Inputs are all tensors that the function reads, including parameters that are not arguments. Random draws are
    repeated. An optimization barrier prevents the compiler from sharing the two computations. If there are hooks or
    `autograd.Function`s inside, everything is kept instead. `use_reentrant` and `preserve_rng_state` are accepted for
    compatibility and have no effect.
    """
    del use_reentrant, preserve_rng_state
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
