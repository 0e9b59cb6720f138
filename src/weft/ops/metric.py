"""Distances between vectors, and losses over pairs, triples and rankings."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from weft.errors import DTypeError, ShapeError, ValueRangeError
from weft.ops._autocast import ACCELERATOR_FLOAT32, Cast
from weft.ops._dims import Factors, NameOf, Sizes, Static, broadcast_shapes, pointwise, wrap_dim
from weft.ops._kinds import Array, OwnDim, Real, Scalar
from weft.ops._neural import (
    FLOAT_MEAN,
    element_loss,
    element_row,
    like,
    partial_loss,
    reduced,
    reduction_name,
)
from weft.ops._norms import vector_norms
from weft.ops._table import Check, Promote, Public, Shards, Types, defop
from weft.ops._type_names import scalar_name


def _hinge(x: Array) -> Array:
    """The larger of x and 0, NaN for NaN; the gradient passes at 0."""
    return jnp.where(x < 0, jnp.zeros_like(x), x)


def _pair_reduces(shapes: Sequence[Sizes], static: Static) -> Factors:
    """For two broadcasting inputs: `dim` (by default the last) disappears."""
    factors = pointwise(shapes, static)
    letters = factors.outs[0]
    if not letters:
        return factors
    gone = letters[wrap_dim(static.get("dim", -1), len(letters))]
    kept = tuple((NameOf(d) if d == gone else d) for d in letters if static.get("keepdim") or d != gone)
    return Factors(factors.ins, (kept,), frozenset({gone}))


@defop(
    dims=_pair_reduces,
    types=Types(promote=Promote.FLOAT, autocast=ACCELERATOR_FLOAT32, exact_numbers=True),
    public=Public(also=("nn.functional",)),
)
def cosine_similarity(x1: Array, x2: Array, dim: OwnDim = 1, eps: Real = 1e-8) -> Array:
    """Cosine of the angle between vectors along `dim`; norms below `eps` count as `eps`."""
    shape = broadcast_shapes(x1.shape, x2.shape)
    axis = wrap_dim(dim, len(shape))
    units = []
    for x in (jnp.broadcast_to(x1, shape), jnp.broadcast_to(x2, shape)):
        length = vector_norms(x, 2, axis)
        # the lower bound must not stop the gradient of the norm
        units.append(x / (length + jax.lax.stop_gradient(jnp.maximum(like(eps, length) - length, 0))))
    product = units[0] * units[1]
    return jnp.sum(product, axis=axis) if shape else product


@defop(
    dims=_pair_reduces, types=Types(promote=Promote.FLOAT, exact_numbers=True), public=Public(also=("nn.functional",))
)
def pairwise_distance(x1: Array, x2: Array, p: float = 2.0, eps: Real = 1e-6, keepdim: bool = False) -> Array:
    """p-norm of x1 - x2 + eps over the last dim."""
    distance = vector_norms(x1 - x2 + like(eps, x1), p, -1)
    return distance if keepdim else distance[..., 0]


def _whole_loss(shapes: Sequence[Sizes], static: Static) -> Factors:
    """Inputs hold vectors along the last dim, which is whole; leading dims are as in `element_loss`."""
    depth = max(len(s) for s in shapes)
    lead = [s[:-1] if len(s) == depth else s for s in shapes]
    factors = element_loss(lead, static)
    ins = tuple(
        (*letters, "vector") if len(s) == depth else letters for letters, s in zip(factors.ins, shapes, strict=True)
    )
    return Factors(ins, factors.outs, factors.whole | {"vector"})


def _check_cosine(input1: Array, input2: Array, target: Array) -> None:
    if target.ndim > 1:
        raise ShapeError("0D or 1D target tensor expected, multi-target not supported")
    if not input1.ndim == input2.ndim == target.ndim + 1:
        raise ShapeError(
            f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found inputs with "
            f"sizes {list(input1.shape)} and {list(input2.shape)}."
        )


@defop(
    dims=_whole_loss,
    types=Types(promote=Promote.FLOAT, autocast=Cast.FLOAT32, exact_numbers=True),
    shards=Shards(partial=partial_loss),
    public=Public(function=False, method="", also=("nn.functional",)),
)
def cosine_embedding_loss(
    input1: Array,
    input2: Array,
    target: Array,
    margin: Real = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """1 - cosine for pairs with target 1; max(0, cosine - margin) for target -1."""
    _check_cosine(input1, input2, target)
    # PyTorch's constant, with which vectors of zeros have cosine 0.
    power = (jnp.sum(x * x, axis=-1) + 1e-12 for x in (input1, input2))
    first, second = power
    cosine = jnp.sum(input1 * input2, axis=-1) / jnp.sqrt(first * second)
    zero = jnp.zeros_like(cosine)
    apart = jnp.where(target == -1, _hinge(cosine - like(margin, cosine)), zero)
    return reduced(jnp.where(target == 1, 1 - cosine, zero) + apart, reduction, size_average, reduce)


@element_row(
    types=Types(promote=Promote.FLOAT, autocast=Cast.FLOAT32, exact_numbers=True),
    public=Public(function=False, method="", also=("nn.functional",)),
)
def margin_ranking_loss(
    input1: Array,
    input2: Array,
    target: Array,
    margin: Real = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """max(0, margin - target * (input1 - input2))."""
    if not input1.ndim == input2.ndim == target.ndim:
        sizes = [f"torch.Size({list(x.shape)})" for x in (input1, input2, target)]
        raise ShapeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            "input1: {}, input2: {}, target: {} ".format(*sizes)
        )
    return reduced(_hinge(-target * (input1 - input2) + like(margin, input1)), reduction, size_average, reduce)


@element_row(
    types=Types(promote=Promote.NONE, autocast=Cast.FLOAT32),
    public=Public(function=False, method="", also=("nn.functional",)),
)
def hinge_embedding_loss(
    input: Array,
    target: Array,
    margin: Scalar = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """The input for target 1; max(0, margin - input) for target -1."""
    if not jnp.issubdtype(input.dtype, jnp.inexact) and reduction_name(reduction, size_average, reduce) == "mean":
        raise DTypeError(f"{FLOAT_MEAN} Got: {scalar_name(input)}")
    zero = jnp.zeros_like(input)
    far = jnp.where(target != 1, _hinge(jnp.asarray(margin).astype(input.dtype) - input), zero)
    near = jnp.where(target != -1, input, zero)
    return reduced(far + near, reduction, size_average, reduce)


def _require_margin(margin: float, eps: float) -> None:
    del eps
    if margin <= 0:
        raise ValueRangeError(f"margin must be greater than 0, got {margin}")


@defop(
    dims=_whole_loss,
    types=Types(promote=Promote.FLOAT, autocast=Cast.FLOAT32, exact_numbers=True),
    shards=Shards(partial=partial_loss),
    check=Check(limits=_require_margin),
    public=Public(function=False, method="", also=("nn.functional",)),
)
def triplet_margin_loss(
    anchor: Array,
    positive: Array,
    negative: Array,
    margin: Real = 1.0,
    p: float = 2,
    eps: Real = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Array:
    """max(0, margin + distance(anchor, positive) - distance(anchor, negative)).

    With `swap` the distance to the negative is the smaller of those from anchor and from positive.
    """
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise ShapeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, "
            f"but got: anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D inputs"
        )
    eps = like(eps, anchor)
    near, far = (vector_norms(anchor - x + eps, p, -1)[..., 0] for x in (positive, negative))
    margin = like(margin, near)  # real, as distances of complex numbers are
    if swap:
        far = jnp.minimum(far, vector_norms(positive - negative + eps, p, -1)[..., 0])
    return reduced(_hinge(margin + near - far), reduction, size_average, reduce)
