"""Functions over the names of dims: changing them, and bringing dims into an order by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NoReturn

from weft._base.guards import is_list_or_tuple, is_mapping
from weft._base.types import Arg
from weft._tensor.arguments import AnyDims, Dim, without_names
from weft._tensor.base import new_handle
from weft._tensor.codegen import op
from weft._tensor.dim_names import checked_names, label_of, names_of, position, renamed_view, set_names
from weft._tensor.functions import composite
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, DimNameError, ShapeError
from weft.ops._dims import Names, diagonal_length, wrap_dim
from weft.ops._table import NO_FUNCTION


@composite(public=NO_FUNCTION)
def has_names(input: Tensor) -> bool:
    """Whether a dim has a name."""
    return any(names_of(input))


# --- other names ---


def _split_at_rest(names: Sequence[object], function: str) -> tuple[list[Arg], list[Arg]] | None:
    """The names before and after `...`, which may be written as a string, too; None where there is none."""
    names = [... if name == "..." else name for name in names]
    if names.count(...) > 1:
        raise DimNameError(f"{function}: More than one Ellipsis ('...') found in names {names}. Please use one.")
    if ... not in names:
        return None
    at = names.index(...)
    return names[:at], names[at + 1 :]


def _with_old(names: Sequence[object], old: Names, function: str) -> Sequence[Arg]:
    """Names in which `...` stands for the old ones at its place."""
    parts = _split_at_rest(names, function)
    if parts is None:
        return names
    before, after = parts
    return [*before, *old[len(before) : max(len(before), len(old) - len(after))], *after]


def _new_names(input: Tensor, names: tuple[object, ...], pairs: Mapping[str, object], function: str) -> Names:
    old = names_of(input)
    if names and pairs:
        raise DimNameError(
            f"{function}: This function takes either positional args or keyword args, but not both. Use "
            f"tensor.{function}(*names) to name dims and tensor.{function}(**rename_map) to rename dims."
        )
    if pairs:
        for name, new in pairs.items():
            if name not in old:
                raise DimNameError(
                    f"{function}: Tried to rename dim '{name}' to dim {new} in Tensor[{old}] but dim '{name}' does not "
                    "exist"
                )
        return checked_names([pairs.get(name, name) if name is not None else None for name in old], len(old))
    if names == (None,):
        return (None,) * len(old)
    return checked_names(_with_old(names, old, function), len(old))


@composite(public=NO_FUNCTION)
def rename(input: Tensor, /, *names: object, **rename_map: object) -> Tensor:
    """A view whose dims have other names: all of them in order, pairs `old="new"`, or None for no names at all."""
    return renamed_view(new_handle(Tensor), input, _new_names(input, names, rename_map, "rename"))


@composite("rename_", public=NO_FUNCTION)
def rename_(input: Tensor, /, *names: object, **rename_map: object) -> Tensor:
    """Give the dims of the tensor itself other names, as `rename` does."""
    return set_names(input, _new_names(input, names, rename_map, "rename_"))


@composite(public=NO_FUNCTION)
def refine_names(input: Tensor, *names: object) -> Tensor:
    """A view in which dims without a name get one; `...` stands for dims that stay as they are."""
    old = names_of(input)
    new = checked_names(_with_old(names, old, "refine_names"))
    if len(new) != len(old):
        raise DimNameError(
            f"refine_names: cannot coerce {label_of(input)} to Tensor{list(new)} because they have a different number "
            f"of dims ({len(old)} and {len(new)})"
        )
    for at, (a, b) in enumerate(zip(old, new, strict=True)):
        if a is not None and a != b:
            why = f"is more specific than None at index {at}" if b is None else f"is different from {b!r} at index {at}"
            raise DimNameError(
                f"refine_names: cannot coerce {label_of(input)} to Tensor{list(new)} because {a!r} {why}"
            )
    return renamed_view(new_handle(Tensor), input, new)


# --- another order ---


@composite(public=NO_FUNCTION)
def align_to(input: Tensor, *names: Arg) -> Tensor:
    """A view whose dims are in this order: new names are dims of size one, `...` all that are not mentioned.

    Only `...` can stand for dims without a name.
    """
    old = names_of(input)
    parts = _split_at_rest(names, "align_to")
    before, after = (list(names), []) if parts is None else parts
    if parts is not None and None in before + after:
        raise DimNameError(f"align_to: the desired order of dimensions cannot contain a None name, got {list(names)}")
    wanted = checked_names(before + after)
    rest = [dim for dim, name in enumerate(old) if name not in wanted]
    if parts is None and rest:
        _refuse_missing(input, rest[0] if None not in old else old.index(None), wanted)
    first, last = _dims_of(before, old), _dims_of(after, old)
    order = [*first, *rest, *last]
    result = op.permute(input, tuple(dim for dim in order if dim is not None))
    for at, dim in enumerate(order):
        if dim is None:
            result = op.unsqueeze(result, at)
    return rename(result, *before, *[old[dim] for dim in rest], *after)


def _dims_of(names: Sequence[str], old: Names) -> list[int | None]:
    """The dim that has each name, or None."""
    return [old.index(name) if name in old else None for name in names]


def _refuse_missing(input: Tensor, dim: int, wanted: Names) -> NoReturn:
    """Raise for a dim that is not among the wanted ones."""
    name = names_of(input)[dim]
    if name is None:
        raise DimNameError(
            f"align_to: All input dims must be named. Found unnamed dim at index {dim} of {label_of(input)}"
        )
    raise DimNameError(
        f"align_to: Cannot find dim {name!r} from {label_of(input)} in desired alignment {list(wanted)}."
    )


@composite(public=NO_FUNCTION)
def align_as(input: Tensor, other: Tensor) -> Tensor:
    """A view whose dims are in the order of the names of `other`, with size one where it lacks them."""
    return align_to(input, *names_of(other))


# --- dims that become one, or one that becomes several ---


def diagonals(x: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    """The diagonals of the matrices over two dims."""
    if not offset:
        return op.diagonal(x, 0, dim1, dim2)
    rows, columns = (x.shape[wrap_dim(dim, x.ndim)] for dim in (dim1, dim2))
    return op.diagonal(x, offset, dim1, dim2, diagonal_length(rows, columns, offset))


@composite()
def diagonal(input: Tensor, offset: int = 0, dim1: Dim = 0, dim2: Dim = 1, *, outdim: str | None = None) -> Tensor:
    """The diagonals of the matrices over `dim1` and `dim2`, along a new last dim, whose name is `outdim`."""
    result = diagonals(input, offset, dim1, dim2)
    return result if outdim is None else rename(result, ..., outdim)


@composite()
def flatten(
    input: Tensor, start_dim: Arg = None, end_dim: Arg = None, out_dim: str | None = None, *, dims: Arg = None
) -> Tensor:
    """The dims from `start_dim` to `end_dim`, both included, become one.

    Dims with names take the name of the new one, too: `flatten(start, end, out_dim)`, or `flatten(dims, out_dim)` with
    the names of consecutive dims.
    """
    if dims is None and is_list_or_tuple(start_dim):
        dims, out_dim = start_dim, end_dim if out_dim is None else out_dim
    if dims is not None:
        start_dim, end_dim = _consecutive(input, dims)
    first, last = 0 if start_dim is None else start_dim, -1 if end_dim is None else end_dim
    if out_dim is None and not (isinstance(first, str) or isinstance(last, str)):
        return input if _is_one_dim(input.ndim, first, last) else op.flatten(input, first, last)
    if out_dim is None:
        raise ArgumentError("flatten(): dims that are given by name need `out_dim`, the name of the dim they become")
    first, last = (without_names(d, input) for d in (first, last))
    result, names = op.flatten(input, first, last), names_of(input)
    first, last = (wrap_dim(d, input.ndim) for d in (first, last))
    return rename(result, *names[:first], out_dim, *names[last + 1 :])


def _is_one_dim(ndim: int, first: Arg, last: Arg) -> bool:
    """Whether these are one dim; what is no dim is refused later."""
    are_ints = isinstance(first, int) and isinstance(last, int)
    return are_ints and -ndim <= first < ndim and -ndim <= last < ndim and first % ndim == last % ndim


def _consecutive(input: Tensor, dims: Sequence[Arg]) -> tuple[int, int]:
    """The first and the last of some dims, which must lie side by side, in order."""
    places = [position(input, d) if isinstance(d, str) or d is None else wrap_dim(d, input.ndim) for d in dims]
    if not places:
        raise DimNameError("flatten(tensor, dims, out_dim): dims cannot be empty")
    if places != list(range(places[0], places[0] + len(places))):
        raise DimNameError(
            f"flatten(tensor, dims, out_dim): dims {list(dims)} must be consecutive in {label_of(input)}"
        )
    return places[0], places[-1]


@composite()
def unflatten(input: Tensor, dim: AnyDims, sizes: Arg) -> Tensor:
    """One dim becomes several, of which one size may be -1; of a dim with a name, pairs of names and sizes."""
    pairs = list(sizes.items()) if is_mapping(sizes) else sizes
    if (is_mapping(sizes) and not sizes) or (sizes is None and has_names(input)):
        raise ShapeError("unflatten: sizes must be non-empty, such as (('C', 2), ('H', 3)) or (2, 3)")
    if not (is_list_or_tuple(pairs) and pairs and is_list_or_tuple(pairs[0])):
        return op.unflatten(input, dim, sizes)
    names, sizes = [name for name, _ in pairs], tuple(size for _, size in pairs)
    at, old = wrap_dim(dim, input.ndim), names_of(input)
    product = prod(size for size in sizes if size != -1)
    size = input.shape[at]
    if product != size and (-1 not in sizes or (product and size % product)):
        raise ShapeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {at} ('{old[at]}': "
            f"{size}) in {label_of(input)}"
        )
    return rename(op.unflatten(input, at, sizes), *old[:at], *names, *old[at + 1 :])
