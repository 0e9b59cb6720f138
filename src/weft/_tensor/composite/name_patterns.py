"""Dims that go where their names say: `rearrange`, `reduce`, and `repeat` by names.

A result is described by one entry for each of its dims: the name of a dim, or a tuple of a new name and the names of
the dims that become it. The ideas are those of einops (Rogozhnikov, 2022), where patterns name the dims; here tensors
do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from weft._base.guards import is_list, is_list_or_tuple
from weft._base.types import Arg
from weft._tensor.codegen import op
from weft._tensor.composite.names import align_to, flatten, rename, unflatten
from weft._tensor.dim_names import label_of, names_of, position
from weft._tensor.functions import composite
from weft._tensor.kind_names import kind_of
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, DimNameError, ValueRangeError
from weft.ops._table import NO_FUNCTION


def _split(input: Tensor, splits: Mapping[str, object]) -> Tensor:
    """Each dim that a keyword names, as several: pairs of names and sizes."""
    for name, pairs in splits.items():
        input = unflatten(input, position(input, name), pairs)
    return input


Entry = tuple[str | None, tuple[str, ...]]
"""A new name, or None where one dim stays as it is, and the names of dims that become it."""


def _entries(input: Tensor, entries: Sequence[object], function: str) -> list[Entry]:
    """The entries of a result; `...` stands for the dims of the tensor that are in no entry."""
    if len(entries) == 1 and is_list(entries[0]):
        entries = entries[0]
    flat = [part for entry in entries for part in (entry if is_list_or_tuple(entry) else (entry,))]
    if flat.count(...) > 1:
        raise DimNameError(f"{function}(): more than one Ellipsis ('...') in {list(entries)}. Please use one.")
    rest = [name for name in names_of(input) if name not in flat]
    if ... in flat and None in rest:
        raise DimNameError(f"{function}(): '...' stands for dims with names, and {label_of(input)} has one without")
    result: list[Entry] = []
    for entry in _with_rest(entries, rest):
        parts: list[Arg] = _with_rest(entry, rest) if is_list_or_tuple(entry) else []
        if isinstance(entry, str):
            result.append((None, (entry,)))
        elif len(parts) > 1 and all(isinstance(name, str) for name in parts):
            result.append((parts[0], tuple(parts[1:])))
        else:
            raise ArgumentError(
                f"{function}(): an entry must be the name of a dim, or a tuple of a new name and the names of the dims "
                f"that become it, not {entry!r}"
            )
    return result


def _with_rest(parts: Sequence[object], rest: Sequence[str | None]) -> list[Arg]:
    return [name for part in parts for name in (rest if part is ... else (part,))]


def _dims_in(input: Tensor, entries: Sequence[Entry], function: str) -> list[str]:
    """The dims in the entries; `RuntimeError` where one is not there, or comes twice."""
    names = [name for _, group in entries for name in group]
    for name in names:
        position(input, name)
        if names.count(name) > 1:
            raise DimNameError(f"{function}(): dim {name!r} of {label_of(input)} is in two entries")
    return names


def _arranged(input: Tensor, result: Sequence[Entry], function: str) -> Tensor:
    """The dims in the order of the entries, those of a tuple as one; all dims have to be in some entry."""
    names = _dims_in(input, result, function)
    for name in names_of(input):
        if name not in names:
            raise DimNameError(
                f"{function}(): dim {name!r} of {label_of(input)} is in no entry; name it, or reduce over it"
            )
    input = align_to(input, *names)
    for new, group in result:
        if new is not None:
            input = flatten(input, dims=group, out_dim=new) if len(group) != 1 else rename(input, **{group[0]: new})
    return input


@composite(public=NO_FUNCTION)
def rearrange(input: Tensor, /, *entries: object, **splits: object) -> Tensor:
    """The dims in another order, some of them joined or split.

    `x.rearrange("N", ("features", "C", "H", "W"))` joins three dims to one; `x.rearrange("N", "head", "D",
    F=(("head", 8), ("D", 64)))` splits one. `...` stands for the other dims. `RuntimeError` where a dim of
    the tensor is in no entry.
    """
    input = _split(input, splits)
    return _arranged(input, _entries(input, entries, "rearrange"), "rearrange")


def _product(x: Tensor, dims: Sequence[int]) -> Tensor:
    for dim in sorted(dims, reverse=True):
        x = op.prod(x, dim)
    return x


_REDUCTIONS: dict[str, Callable[[Tensor, Arg], Tensor]] = {
    "sum": lambda x, dims: op.sum(x, dims),
    "mean": lambda x, dims: op.mean(x, dims),
    "prod": _product,
    "var": lambda x, dims: op.var_dims(x, dims),
    "std": lambda x, dims: op.std_dims(x, dims),
    "max": lambda x, dims: op.amax(x, dims),
    "min": lambda x, dims: op.amin(x, dims),
    "any": lambda x, dims: op.any(x, dims),
    "all": lambda x, dims: op.all(x, dims),
}


@composite(public=NO_FUNCTION)
def reduce(input: Tensor, /, *entries: object, by: object, **splits: object) -> Tensor:
    """`rearrange`, after a reduction over the dims in no entry.

    It is `by` "sum", "mean", "prod", "var", "std", "max", "min", "any" or "all".
    """
    if not isinstance(by, str):
        raise ArgumentError(f"reduce(): `by` is the name of a reduction, such as 'sum', not {kind_of(by)}")
    if by not in _REDUCTIONS:
        raise ValueRangeError(f"reduce(): `by` is one of {', '.join(map(repr, _REDUCTIONS))}, not {by!r}")
    input = _split(input, splits)
    result = _entries(input, entries, "reduce")
    kept = _dims_in(input, result, "reduce")
    gone = tuple([at for at, name in enumerate(names_of(input)) if name not in kept])
    return _arranged(_REDUCTIONS[by](input, gone) if gone else input, result, "reduce")


@composite(public=NO_FUNCTION)
def repeat(input: Tensor, /, *sizes: object, **counts: object) -> Tensor:
    """Copies along the dims: a number for each, new dims first; or by name, `x.repeat(N=2)`.

    A name that no dim has makes a new first dim of so many copies.
    """
    if not counts or "repeats" in counts:
        return op.repeat(input, *sizes, **counts)
    if sizes:
        raise DimNameError(f"repeat(): give the numbers of copies by position or by name, not both: {label_of(input)}")
    names = names_of(input)
    new = [name for name in counts if name not in names]
    result = op.repeat(input, *[counts[name] for name in new], *[counts.get(name or "", 1) for name in names])
    return rename(result, *new, *names)
