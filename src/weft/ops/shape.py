"""Views of all elements: in another shape, with the dims in another order, or repeated by `expand`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf, prod

import jax.numpy as jnp

from weft._base.types import Arg
from weft.errors import ShapeError
from weft.ops import _strides as strides
from weft.ops._dims import Factors, Rule, Sizes, Static, wrap_dim
from weft.ops._kinds import Array, Dim, DimList, Dims, Ints, OutShape, Shape
from weft.ops._rows import alias
from weft.ops._shape_dims import once, permuted, regrouped
from weft.ops._table import IN_PLACE, INTERNAL, IS_LINEAR, NO_FUNCTION, PLAIN, Derivative, OpDef, Public, View, defop
from weft.ops._type_names import scalar_name

view_op = partial(defop, shards=IS_LINEAR)


# --- another shape, with the elements in the same order ---


def resolved(shape: Shape, size: int) -> Shape:
    """`shape` with -1 replaced by the size that `size` elements leave for it."""
    for i, n in enumerate(shape):
        if n < -1:
            raise ShapeError(f"invalid shape dimension {n} at index {i} of shape {list(shape)}")
    if shape.count(-1) > 1:
        raise ShapeError("only one dimension can be inferred")
    product = prod(n for n in shape if n != -1)
    if -1 in shape and product == 0 and size == 0:
        raise ShapeError(
            f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified "
            "dimension size -1 can be any value and is ambiguous"
        )
    if product != size and (-1 not in shape or product == 0 or size % product):
        raise ShapeError(f"shape '{list(shape)}' is invalid for input of size {size}")
    return tuple(size // product if n == -1 else n for n in shape)


def _view_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    return regrouped(shapes[0], resolved(static["shape"], prod(shapes[0])))


def _of_size(sizes: Sizes, shape: Shape) -> Sizes:
    return resolved(shape, prod(sizes))


def _viewed(layout: strides.Layout, *params: Arg, sizes_of: Callable[..., Sizes] = _of_size) -> strides.Layout:
    result = strides.shaped(sizes_of)(layout, *params)
    if result is None:
        raise ShapeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
            "contiguous subspaces). Use .reshape(...) instead."
        )
    return result


@view_op(dims=_view_dims, view=View(layout=_viewed, by_layout=True), public=INTERNAL)
def view(input: Array, shape: OutShape) -> Array:
    """The elements in the same order in another shape, in which one size may be -1."""
    return jnp.reshape(input, resolved(shape, input.size))


@view_op(
    derivative=Derivative(name="View"), dims=_view_dims, view=View(layout=strides.shaped(_of_size), by_layout=True)
)
def reshape(input: Array, shape: OutShape) -> Array:
    """The elements in the same order in another shape, in which one size may be -1."""
    return jnp.reshape(input, resolved(shape, input.size))


def _raveled(layout: strides.Layout) -> strides.Layout | None:
    return strides.shaped(lambda sizes: (prod(sizes),))(layout) if layout.is_contiguous else None


@view_op(
    derivative=Derivative(name="View"),
    dims=lambda shapes, static: regrouped(shapes[0], (prod(shapes[0]),), {0: 0} if len(shapes[0]) == 1 else {}),
    view=View(layout=_raveled, by_layout=True),
)
def ravel(input: Array) -> Array:
    """All elements in one dim."""
    return jnp.ravel(input)


def _flat(shape: Sizes, start: int, end: int) -> Sizes:
    if start > end:
        raise ShapeError("flatten() has invalid args: start_dim cannot come after end_dim")
    return (*shape[:start], prod(shape[start : end + 1]), *shape[end + 1 :])


def _flatten_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    ndim = len(shapes[0])
    start, end = (wrap_dim(static.get(k, d), ndim) for k, d in (("start_dim", 0), ("end_dim", -1)))
    rest = [d for d in range(ndim) if not start < d <= end]  # for each dim of the result the first that it comes from
    kept = {new: old for new, old in enumerate(rest) if old != start or start == end}
    return regrouped(shapes[0], _flat(shapes[0], start, end), kept)


def _flat_layout(layout: strides.Layout, start: int = 0, end: int = -1) -> strides.Layout | None:
    ndim = len(layout.sizes)
    if not ndim:
        return strides.inserted(layout, 0)
    first, last = wrap_dim(start, ndim), wrap_dim(end, ndim)
    return layout if first == last else strides.shaped(_flat)(layout, first, last)


@view_op(
    derivative=Derivative(name="View"),
    dims=_flatten_dims,
    view=View(layout=_flat_layout, by_layout=True),
    public=INTERNAL,
)
def flatten(input: Array, start_dim: Dim = 0, end_dim: Dim = -1) -> Array:
    """The dims from `start_dim` to `end_dim`, both included, become one."""
    return jnp.reshape(input, _flat(input.shape, start_dim, end_dim))


def _unflat(shape: Sizes, dim: int, sizes: Shape) -> Sizes:
    if not (sizes and shape):
        what = "sizes must be non-empty" if shape else "Dimension specified as 0 but tensor has no dimensions"
        raise ShapeError(f"unflatten: {what}")
    product = prod(n for n in sizes if n != -1)
    if sizes.count(-1) < 2 and product != shape[dim] and (-1 not in sizes or product == 0 or shape[dim] % product):
        raise ShapeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {dim} "
            f"({shape[dim]}) in the input tensor"
        )
    return (*shape[:dim], *resolved(sizes, shape[dim]), *shape[dim + 1 :])


def _unflatten_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    """The dims that one dim becomes have no names."""
    dim, more = static["dim"], len(static["sizes"]) - 1
    kept = {d if d < dim else d + more: d for d in range(len(shapes[0])) if d != dim}
    return regrouped(shapes[0], _unflat(shapes[0], dim, static["sizes"]), kept)


@view_op(
    derivative=Derivative(name="View"),
    dims=_unflatten_dims,
    view=View(layout=partial(_viewed, sizes_of=_unflat), by_layout=True),
    public=INTERNAL,
)
def unflatten(input: Array, dim: Dim, sizes: OutShape) -> Array:
    """One dim becomes several, of which one size may be -1."""
    return jnp.reshape(input, _unflat(input.shape, dim, sizes))


def _singles(shape: Sizes, dim: Dims) -> tuple[int, ...]:
    """The dims of size one among those listed; None lists all."""
    once(dim or ())
    return tuple(d for d, size in enumerate(shape) if size == 1 and (dim is None or d in dim))


def _squeeze_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    gone = _singles(shapes[0], static.get("dim"))
    letters = tuple(range(len(shapes[0])))
    whole = _singles((1,) * len(letters), static.get("dim"))  # a part of a split dim may have size one
    return Factors((letters,), (tuple(d for d in letters if d not in gone),), frozenset(whole))


@view_op(dims=_squeeze_dims, view=View(layout=strides.without(_singles)), public=IN_PLACE)
def squeeze(input: Array, dim: Dims = None) -> Array:
    """The input without its dims of size one, or without those of them that `dim` lists."""
    return jnp.squeeze(input, _singles(input.shape, dim))


def _unsqueeze_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    letters = tuple(range(len(shapes[0])))
    at = wrap_dim(static["dim"], len(letters) + 1)
    return Factors((letters,), ((*letters[:at], "new", *letters[at:]),))


@view_op(dims=_unsqueeze_dims, view=View(layout=strides.inserted), public=IN_PLACE)
def unsqueeze(input: Array, dim: int) -> Array:
    """The input with a new dim of size one at `dim`."""
    return jnp.expand_dims(input, wrap_dim(dim, input.ndim + 1))


# --- another order of dims ---


def _swapped(ndim: int, a: int, b: int) -> tuple[int, ...]:
    order = list(range(ndim))
    if order:
        order[a], order[b] = order[b], order[a]
    return tuple(order)


def _swap_dims(first: str, second: str) -> Rule:
    def rule(shapes: Sequence[Sizes], static: Static) -> Factors:
        return permuted(_swapped(len(shapes[0]), static[first], static[second]))

    return rule


@view_op(dims=_swap_dims("dim0", "dim1"), view=View(layout=strides.ordered(_swapped)), public=IN_PLACE)
def transpose(input: Array, dim0: Dim, dim1: Dim) -> Array:
    """The two dims are swapped."""
    return jnp.transpose(input, _swapped(input.ndim, dim0, dim1))


alias(transpose, "swapdims")


@view_op(
    derivative=Derivative(name="Transpose"),
    dims=_swap_dims("axis0", "axis1"),
    view=View(layout=strides.ordered(_swapped)),
    public=IN_PLACE,
)
def swapaxes(input: Array, axis0: Dim, axis1: Dim) -> Array:
    """The two dims are swapped."""
    return jnp.transpose(input, _swapped(input.ndim, axis0, axis1))


def _reversed(ndim: int) -> range:
    return range(ndim)[::-1]


def _reversed_dims(shapes: Sequence[Sizes]) -> Factors:
    return permuted(_reversed(len(shapes[0])))


_PROPERTY = Public(function=False, method="", attribute=True)
_turns = partial(view_op, dims=_reversed_dims, view=View(layout=strides.ordered(_reversed)))


@_turns(public=IN_PLACE)
def t(input: Array) -> Array:
    """The transpose of a matrix; tensors of fewer dims stay as they are."""
    if input.ndim > 2:
        raise ShapeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return input.T


@_turns(derivative=Derivative(name="Permute"), public=_PROPERTY)
def T(input: Array) -> Array:
    """All dims in reverse order."""
    return input.T


def _last_two_swapped(ndim: int) -> Sequence[int]:
    return _swapped(ndim, ndim - 2, ndim - 1) if ndim > 1 else range(ndim)


def _last_two_dims(shapes: Sequence[Sizes]) -> Factors:
    return permuted(_last_two_swapped(len(shapes[0])))


def _matrix_flip(name: str, word: str, *, most: float = inf, conjugate: bool = True) -> OpDef:
    """A row that exchanges the last two dims of a tensor with two to `most` dims, or with none."""

    def body(input: Array) -> Array:
        if input.ndim == 1 or input.ndim > most:
            which = "matrices or batches of matrices" if most == inf else "matrices (2-D tensors)"
            advice = " For batches of matrices, consider using tensor.mH" if input.ndim > most else ""
            raise ShapeError(f"tensor.{word} is only supported on {which}. Got {input.ndim}-D tensor.{advice}")
        flipped = jnp.swapaxes(input, -1, -2) if input.ndim else input
        return jnp.conj(flipped) if conjugate else flipped

    body.__doc__ = f"The last two dims change places{', conjugated' * conjugate}."
    flip = strides.ordered(_last_two_swapped)

    def layout(layout: strides.Layout) -> strides.Layout | None:
        return flip(strides.conjugated(layout) if conjugate else layout)

    return view_op(
        name,
        derivative=Derivative(name="Transpose"),
        dims=_last_two_dims,
        view=View(layout=layout),
        public=PLAIN if name == "adjoint" else _PROPERTY,
    )(body)


mT = _matrix_flip("mT", "mT", conjugate=False)
mH = _matrix_flip("mH", "mH")
H = _matrix_flip("H", "H", most=2)
adjoint = _matrix_flip("adjoint", "adjoint()")


def _permutation(ndim: int, dims: Sequence[int]) -> tuple[int, ...]:
    if len(dims) != ndim:
        raise ShapeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of "
            f"the desired ordering of dimensions i.e. input.dim() = {ndim} is not equal to "
            f"len(dims) = {len(dims)}"
        )
    order = tuple(wrap_dim(d, ndim) for d in dims)
    if len(set(order)) != ndim:
        raise ShapeError("permute(): duplicate dims are not allowed.")
    return order


@view_op(
    dims=lambda shapes, static: permuted(_permutation(len(shapes[0]), static["dims"])),
    view=View(layout=strides.ordered(_permutation)),
)
def permute(input: Array, dims: DimList) -> Array:
    """Output dim `i` is input dim `dims[i]`."""
    return jnp.transpose(input, _permutation(input.ndim, dims))


def _moved(ndim: int, source: Ints, destination: Ints) -> tuple[int, ...]:
    """The order of dims after a move: the dims not in `source` keep their order and fill the remaining places."""
    source, destination = ((dims,) if isinstance(dims, int) else dims for dims in (source, destination))
    if len(source) != len(destination):
        raise ShapeError(
            f"movedim: Invalid source or destination dims: source ({list(source)} dims) should contain the "
            f"same number of dims as destination ({list(destination)} dims)"
        )
    placed = []
    for name, dims in (("source", source), ("destination", destination)):
        placed.append([wrap_dim(d, ndim) for d in dims])
        if len(set(placed[-1])) < len(dims):
            raise ShapeError(f"movedim: repeated dim in `{name}` ({list(dims)})")
    goes = dict(zip(*reversed(placed), strict=True))
    rest = iter([d for d in range(ndim) if d not in placed[0]])
    return tuple(goes[d] if d in goes else next(rest) for d in range(ndim))


def _move_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    return permuted(_moved(len(shapes[0]), static["source"], static["destination"]))


@view_op(derivative=Derivative(name="Permute"), dims=_move_dims, view=View(layout=strides.ordered(_moved)))
def movedim(input: Array, source: DimList, destination: DimList) -> Array:
    """Each source dim goes to its destination; the others keep their order."""
    return jnp.transpose(input, _moved(input.ndim, source, destination))


alias(movedim, "moveaxis")


# --- repeated elements ---


def expanded(input: Array, size: Shape) -> Shape:
    """`size` with every -1 replaced by the tensor's own size."""
    new = len(size) - input.ndim
    if new < 0:
        raise ShapeError(
            f"expand(torch.{scalar_name(input)}Tensor{{{list(input.shape)}}}, size={list(size)}): the number "
            f"of sizes provided ({len(size)}) must be greater or equal to the number of dimensions in the "
            f"tensor ({input.ndim})"
        )
    out = list(size)
    for i, want in reversed(list(enumerate(size))):
        have = input.shape[i - new] if i >= new else 1
        if i < new and want < 0:
            raise ShapeError(
                f"The expanded size of the tensor ({want}) isn't allowed in a leading, non-existing dimension {i}"
            )
        if want not in (-1, have) and (have != 1 or want < 0):
            raise ShapeError(
                f"The expanded size of the tensor ({want}) must match the existing size ({have}) at "
                f"non-singleton dimension {i}.  Target sizes: {list(size)}.  "
                f"Tensor sizes: {list(input.shape)}"
            )
        out[i] = have if want == -1 else want
    return tuple(out)


def _expand_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    ndim, new = len(shapes[0]), len(static["size"]) - len(shapes[0])
    return Factors((tuple(range(ndim)),), ((*(f"new:{i}" for i in range(new)), *range(ndim)),))


def _expand(input: Array, size: OutShape) -> Array:
    """Dims of size one repeated, and leading dims added, to reach `size`, in which -1 keeps a size."""
    return jnp.broadcast_to(input, expanded(input, size))


expand = view_op("expand", dims=_expand_dims, view=View(layout=strides.expanded, spreads=True), public=NO_FUNCTION)(
    _expand
)
broadcast_to = view_op(
    "broadcast_to",
    derivative=Derivative(name="Expand"),
    dims=_expand_dims,
    view=View(layout=strides.expanded, spreads=True),
)(_expand)
