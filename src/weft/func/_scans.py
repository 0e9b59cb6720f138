"""Functions over the slices of tensors along a dim: one after the other (`scan`, `map`), or in a tree."""

from __future__ import annotations

from typing import Any

from weft._base.types import AnyCallable, Arg, PyTree, Result
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.errors import OutOfRangeError, PreconditionError, ValueRangeError
from weft.func._trees import Structure, flattened, rebuilt
from weft.func._vmap import vmap


def scan(
    combine_fn: AnyCallable, init: PyTree, xs: PyTree, *, dim: int = 0, reverse: bool = False
) -> tuple[PyTree, PyTree]:
    """Carry values along a dim: `carry, y = combine_fn(carry, x)` for each slice `x`, from `init` on.

    Returns the last carry, and what each step has given as `y`, stacked along a new first dim in the order of the
    slices. `xs` are tensors, or trees of them, of one size along `dim`. With `reverse` it begins at the last slice.
    Gradients flow to everything. `RuntimeError` where the carry changes its structure, shape or type.
    """
    if not callable(combine_fn):
        raise OutOfRangeError(f"Combine_fn must be a callable, but got {combine_fn}")
    if not isinstance(reverse, bool):
        raise OutOfRangeError(f"Reverse must be a bool, but got {type(reverse)}")
    carries, of_carry = flattened(init)
    if not carries:
        raise OutOfRangeError("scan() operator requires init leaves.")
    for leaf in carries:
        if not isinstance(leaf, Tensor):
            raise OutOfRangeError(f"All init leaves must be a Tensor but got {leaf}")
    leaves, structure = flattened(xs)
    if not leaves:
        return init, []
    _require_sizes(leaves, dim, OutOfRangeError)
    rows = [x.unbind(dim) for x in leaves]
    # A loop in Python, so that `combine_fn` may do anything, and each step has its own place in the graph.
    carry, results, of_result = init, [], None
    for at in range(len(rows[0])) if not reverse else reversed(range(len(rows[0]))):
        pair: Arg = combine_fn(carry, rebuilt(structure, [row[at] for row in rows]))
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise OutOfRangeError(f"scan: combine_fn must return the carry and an output, got {type(pair).__name__}")
        carry, result = pair
        _require_same_carry(flattened(carry), (carries, of_carry))
        parts, of_result = flattened(result)
        results.append(parts)
    if reverse:
        results.reverse()
    assert of_result is not None, "there is at least one slice"
    return carry, _stacked(results, of_result)


def associative_scan(
    combine_fn: AnyCallable, xs: PyTree, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> PyTree:
    """All prefixes of slices along a dim, combined by a function for which the order of pairs does not matter.

    `combine_fn(a, b)` takes and gives trees like `xs`. It is called on many slices at once, about twice for each
    doubling of their number. A "pointwise" one computes elements from elements; a "generic" one is given single slices,
    by `vmap`. With `reverse` the prefixes begin at the last slice. Gradients flow through it.
    """
    if not callable(combine_fn):
        raise ValueRangeError(f"Combine_fn must be a callable, but got {combine_fn}")
    if not isinstance(reverse, bool):
        raise OutOfRangeError(f"Reverse must be a bool, but got {type(reverse)}")
    if combine_mode not in ("pointwise", "generic"):
        raise ValueRangeError(f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}")
    leaves, structure = flattened(xs)
    if not leaves:
        raise ValueRangeError("associative_scan: expected at least one tensor in xs, got none")
    _require_sizes(leaves, dim, ValueRangeError)
    # Prefixes from the last slice on are those of the reversed slices, reversed.
    fronts = [x.movedim((dim,), (0,)) for x in leaves]
    if reverse:
        fronts = [x.flip(0) for x in fronts]
    prefixes = _prefixes(_combining(combine_fn, structure, vectorized=combine_mode == "pointwise"), fronts)
    if reverse:
        prefixes = [x.flip(0) for x in prefixes]
    return rebuilt(structure, [x.movedim((0,), (dim,)) for x in prefixes])


def _combining(combine_fn: AnyCallable, structure: Structure, *, vectorized: bool) -> AnyCallable:
    """`combine_fn` on lists of leaves with the slices along their first dim."""

    def of_leaves(a: list[Tensor], b: list[Tensor]) -> list[Tensor]:
        combined, own = flattened(combine_fn(rebuilt(structure, a), rebuilt(structure, b)))
        if own != structure:
            raise PreconditionError(
                "associative_scan: combine_fn must return what it takes, tensors in the same containers as xs"
            )
        return combined

    return of_leaves if vectorized else vmap(of_leaves)


def _prefixes(combine: AnyCallable, xs: list[Tensor]) -> list[Tensor]:
    """The prefixes along the first dim: those of pairs of neighbours, and between them one more slice each."""
    count = xs[0].shape[0]
    if count < 2:
        return xs
    even, odd = [x[: count - 1 : 2] for x in xs], [x[1::2] for x in xs]
    at_odd = _prefixes(combine, combine(even, odd))
    first = [x[:1] for x in xs]
    if count == 2:
        return [op.cat([a, b]) for a, b in zip(first, at_odd, strict=True)]
    rest = [x[2::2] for x in xs]
    between = combine([x[: len(rest[0])] for x in at_odd], rest)
    at_even = [op.cat([a, b]) for a, b in zip(first, between, strict=True)]
    return [_interleaved(a, b) for a, b in zip(at_even, at_odd, strict=True)]


def _interleaved(even: Tensor, odd: Tensor) -> Tensor:
    count = odd.shape[0]
    pairs = op.stack([even[:count], odd], dim=1).flatten(0, 1)
    return pairs if even.shape[0] == count else op.cat([pairs, even[count:]])


def map(f: AnyCallable, xs: PyTree, *args: Arg) -> PyTree:
    """`f(x, *args)` for each slice `x` of tensors along their first dim, stacked."""
    leaves, structure = flattened(xs)
    if not leaves or not all(isinstance(x, Tensor) for x in leaves):
        raise OutOfRangeError(f"Mapped xs can only consist of tensors. Got xs {leaves}.")
    shapes = [x.shape for x in leaves]
    if any(not shape for shape in shapes) or not shapes[0][0]:
        raise OutOfRangeError("Leading dimensions of mapped xs cannot be 0.")
    if len({shape[0] for shape in shapes}) > 1:
        raise OutOfRangeError(f"Leading dimensions of mapped xs must be consistent. Got shapes {shapes}.")
    rows = [x.unbind(0) for x in leaves]
    results = [flattened(f(rebuilt(structure, list(row)), *args)) for row in zip(*rows, strict=True)]
    return _stacked([parts for parts, _ in results], results[0][1])


def _stacked(rows: list[list[Tensor]], structure: Structure) -> PyTree:
    """A tree of which each leaf stacks that of all rows."""
    return rebuilt(structure, [op.stack(list(column)) for column in zip(*rows, strict=True)])


# --- what is refused ----------------------------------------------------------------------------------------------


def _require_sizes(leaves: list[Any], dim: int, error: type[Exception]) -> None:
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise error(f"All xs leaves must be a Tensor but got {leaf}")
        if leaf.dim() <= dim or leaf.dim() < -dim or not leaf.shape[dim]:
            raise error("All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0")
    if len({leaf.shape[dim] for leaf in leaves}) > 1:
        sizes = [leaf.shape[dim] for leaf in leaves]
        raise error(f"All xs leaves must have the same size along the scan dimension, but got {sizes}")


def _require_same_carry(now: tuple[list[Any], Structure], before: tuple[list[Any], Structure]) -> None:
    def types(leaves: list[Any]) -> Result:
        return [(tuple(x.shape), x.dtype) if isinstance(x, Tensor) else type(x) for x in leaves]

    if now[1] != before[1] or types(now[0]) != types(before[0]):
        raise OutOfRangeError(
            f"scan: the carry that combine_fn returns must have the structure, shapes and types of init, which are "
            f"{types(before[0])}, but it has {types(now[0])}"
        )
