"""Linear and bilinear layers, and table look-ups."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from weft.errors import DTypeError, IndexDomainError, ShapeError
from weft.ops._autocast import ACCELERATOR_PROMOTE
from weft.ops._dims import Factors, PartOf, Sizes, Static, einsum, pointwise
from weft.ops._findings import FirstOf, Flags, Misses
from weft.ops._index import OUT_OF_SELF, outside, outside_dim
from weft.ops._kernels.product import LINEAR
from weft.ops._kinds import Array, Scalar, Whole
from weft.ops._norms import vector_norms
from weft.ops._reduce import wide
from weft.ops._table import (
    IN_FUNCTIONAL,
    INTERNAL,
    LOWERED,
    NO_ARITHMETIC,
    NO_DERIVATIVE,
    Arithmetic,
    Check,
    Derivative,
    Public,
    Shards,
    Types,
    defop,
)
from weft.ops._type_names import c_name, scalar_name


def _linear_dims(shapes: Sequence[Sizes]) -> Factors:
    lead, met = tuple(range(len(shapes[0]) - 1)), PartOf("in")
    out = ("out",) * (len(shapes[1]) - 1)
    result = (*lead, *out)
    bias = [result[max(0, len(result) - len(s)) :] for s in shapes[2:]]
    return Factors(((*lead, met), (*out, met), *bias), (result,), product=True)


def _linear_name(shapes: Sequence[Sizes], out: Sizes) -> str:
    """PyTorch's name of the derivative: that of the product, without a bias."""
    del out
    return "Addmm" if len(shapes) > 2 else "Mm"


@defop(
    derivative=Derivative(name=_linear_name),
    dims=_linear_dims,
    types=LOWERED,
    shards=Shards(partial="sum", addend="bias"),
    public=IN_FUNCTIONAL,
    native=[LINEAR],
)
def linear(input: Array, weight: Array, bias: Array | None = None) -> Array:
    """input weight' + bias, with weights of (outputs, inputs); leading dims of the input stay."""
    if not input.ndim or not weight.ndim:
        dims = f"{input.ndim}D and {weight.ndim}D"
        raise ShapeError(f"both arguments to linear need to be at least 1D, but they are {dims}")
    if input.dtype != weight.dtype and bias is None:
        kinds = f"{c_name(input)} != {c_name(weight)}"
        raise DTypeError(f"expected m1 and m2 to have the same dtype, but got: {kinds}")
    if input.dtype != weight.dtype:
        kinds = f"{scalar_name(input)} and {scalar_name(weight)}"
        raise DTypeError(f"mat1 and mat2 must have the same dtype, but got {kinds}")
    if input.shape[-1:] != weight.shape[-1:]:
        left = f"{input.size // max(input.shape[-1], 1)}x{input.shape[-1]}"
        right = "x".join(str(s) for s in reversed(weight.shape))
        raise ShapeError(f"mat1 and mat2 shapes cannot be multiplied ({left} and {right})")
    y = jnp.matmul(input, weight.T)
    if bias is None:
        return y
    if bias.ndim > y.ndim:
        raise ShapeError(
            f"linear(): the bias must have no more dims than the result, {y.ndim}, but has the sizes {list(bias.shape)}"
        )
    if bias.ndim and bias.shape[-1] not in (1, y.shape[-1]):
        raise ShapeError(
            f"The expanded size of the tensor ({y.shape[-1]}) must match the existing size "
            f"({bias.shape[-1]}) at non-singleton dimension {y.ndim - 1}.  Target sizes: {list(y.shape)}.  "
            f"Tensor sizes: {list(bias.shape)}"
        )
    return y + bias


def _bilinear_dims(shapes: Sequence[Sizes]) -> Factors:
    bias = ", o" * (len(shapes) - 3)
    return einsum(f"... i, ... j, o i j{bias} -> ... o")(shapes)


@defop(
    types=Types(autocast=ACCELERATOR_PROMOTE, arithmetic=Arithmetic.OWN),
    dims=_bilinear_dims,
    public=Public(method="", also=("nn.functional",)),
)
def bilinear(input1: Array, input2: Array, weight: Array, bias: Array | None = None) -> Array:
    """input1' weight[o] input2 + bias[o] for every output o."""
    for at, (a, b) in enumerate(zip(input1.shape[:-1], input2.shape[:-1], strict=True)):
        if a != b:
            raise ShapeError(f"bilinear(): input batch dimensions do not match at dim {at}: got {a} and {b}")
    for name, x, size in (("input1", input1, weight.shape[1]), ("input2", input2, weight.shape[2])):
        if x.shape[-1] != size:
            raise ShapeError(
                f"bilinear(): {name} size does not match weight size: got {x.shape[-1]} but expected {size}"
            )
    y = jnp.einsum("...i,oij,...j->...o", input1, weight, input2)
    return y if bias is None else y + bias


def _embedding_dims(shapes: Sequence[Sizes], static: Static) -> Factors:
    letters = tuple(range(len(shapes[0])))
    counted = letters if static["scale_grad_by_freq"] else ()  # gradients depend on how often a row is named in all
    return Factors((letters, ("row", "feature")), ((*letters, "feature"),), frozenset({"row", *counted}))


def _embedding_vjp(
    g: Array, input: Array, weight: Array, padding_idx: Whole | None, scale_grad_by_freq: bool
) -> tuple[None, Array]:
    rows, g = input.reshape(-1), wide(g.reshape(-1, g.shape[-1]))
    if scale_grad_by_freq:
        counts = jnp.zeros(weight.shape[0], g.dtype).at[rows].add(1, mode="drop")
        g = g / jnp.take(counts, rows, mode="clip")[:, None]
    if padding_idx is not None:
        g = jnp.where((rows == padding_idx)[:, None], 0, g)
    return None, jnp.zeros(weight.shape, g.dtype).at[rows].add(g, mode="drop").astype(weight.dtype)


def _bad_row(input: Array, weight: Array) -> Misses:
    return outside_dim(input, weight, 0)


def _bad_number(input: Array, count: int) -> Misses:
    return outside(input, count, f"dimension 0 with size {count}")


@defop(types=NO_ARITHMETIC, dims=pointwise, public=INTERNAL, check=Check(elements=_bad_number, text=OUT_OF_SELF))
def row_numbers(input: Array, count: int) -> Array:
    """Numbers of rows, as a finding of those outside of a table of so many rows."""
    del count
    return input


def _rows_of_first(shapes: Sequence[Sizes]) -> Factors:
    letters, *indices = [tuple((at, dim) for dim in range(len(shape))) for at, shape in enumerate(shapes)]
    return Factors((letters, *indices), (letters,), frozenset((*letters, *[x for dims in indices for x in dims])))


@defop(public=INTERNAL, derivative=NO_DERIVATIVE, dims=_rows_of_first)
def limit_rows(weight: Array, indices: Array, max_norm: Scalar, norm_type: float) -> Array:
    """`weight`, with the rows that `indices` name scaled down to a norm of at most `max_norm`."""
    if weight.ndim != 2:
        raise ShapeError(
            f"Expected 2-dimensional tensor, but got {weight.ndim}-dimensional tensor for argument #1 'self' "
            "(while checking arguments for embedding_renorm_)"
        )
    norms = vector_norms(wide(weight), norm_type, 1)
    named = jnp.zeros((weight.shape[0], 1), bool).at[indices.reshape(-1)].set(True, mode="drop")
    scaled = weight * (max_norm / (norms + 1e-7))  # just under the bound, as in PyTorch
    return jnp.where(named & (norms > max_norm), scaled, weight).astype(weight.dtype)


@defop(
    types=NO_ARITHMETIC,
    dims=_embedding_dims,
    public=INTERNAL,
    derivative=Derivative(vjp=_embedding_vjp),
    check=Check(elements=_bad_row, text=OUT_OF_SELF),
)
def embedding(input: Array, weight: Array, padding_idx: Whole | None = None, scale_grad_by_freq: bool = False) -> Array:
    """The rows of `weight` at the indices. Row `padding_idx` gets no gradient. Gradients are dense."""
    del scale_grad_by_freq
    if input.dtype not in (jnp.int64, jnp.int32):
        raise DTypeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; "
            f"but got torch.{scalar_name(input)}Tensor instead (while checking arguments for embedding)"
        )
    if weight.ndim != 2:
        raise ShapeError("'weight' must be 2-D")
    return jnp.take(weight, input, axis=0, mode="clip")


def _one_hot_dims(shapes: Sequence[Sizes]) -> Factors:
    letters = tuple(range(len(shapes[0])))
    return Factors((letters,), ((*letters, "class"),), frozenset({"class"}))


def _bad_class(input: Array, num_classes: int) -> FirstOf:
    texts = ("Class values must be non-negative.", "Class values must be smaller than num_classes.")
    return FirstOf((Flags(input < 0), Flags(input >= num_classes)), texts)


@defop(
    "one_hot_classes",
    dims=_one_hot_dims,
    public=INTERNAL,
    check=Check(elements=_bad_class, text="{}", error=IndexDomainError),
)
def one_hot(input: Array, num_classes: int) -> Array:
    """A 1 at each class number along a new last dim, as int64."""
    if input.dtype != jnp.int64:
        raise DTypeError("one_hot is only applicable to index tensor of type LongTensor.")
    return jax.nn.one_hot(input, num_classes, dtype=jnp.int64)
