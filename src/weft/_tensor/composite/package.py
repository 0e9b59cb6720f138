"""Layers as functions of the package itself, with another order of arguments than in `nn.functional`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft._base.state import using
from weft._base.types import Arg
from weft._tensor.arguments import Dim
from weft._tensor.codegen import op
from weft._tensor.composite import neural
from weft._tensor.dim_names import names_of, with_names
from weft._tensor.functions import composite
from weft._tensor.inplace import inplace_of
from weft._tensor.scalar import Number
from weft._tensor.sparse.gradients import embedded
from weft._tensor.tensor import Results, Tensor
from weft._tensor.view import write
from weft.errors import OutOfRangeError, ShapeError
from weft.ops._dims import wrap_dim
from weft.ops._table import NO_METHOD

# ---- dropout


def _feature_dropout(input: Tensor, p: float, train: bool, inplace: bool) -> Tensor:
    if input.ndim < 2:
        raise ShapeError("Feature dropout requires at least 2 dimensions in the input")
    return neural.dropped("dropout_train", input, p, train, inplace, input.ndim - 2)


def _dropouts(name: str, drop: Callable[..., Tensor]) -> None:
    """Define the function `name` and its in-place form, which take positional arguments."""

    def checked(input: Tensor, p: float, train: bool, inplace: bool) -> Tensor:
        if not 0 <= p <= 1:
            raise OutOfRangeError(f"dropout probability has to be between 0 and 1, but got {p}")
        return drop(input, p, train, inplace)

    def dropout(input: Tensor, p: float, train: bool) -> Tensor:
        return checked(input, p, train, False)

    def dropout_(input: Tensor, p: float, train: bool) -> Tensor:
        return checked(input, p, train, True)

    for form, spelled in ((dropout, name), (dropout_, f"{name}_")):
        composite(
            spelled,
            doc=f"`{name}` of `nn.functional`{', written to the input' if form is dropout_ else ''}.",
            public=NO_METHOD,
        )(form)


_dropouts("dropout", neural.dropout)
_dropouts("feature_dropout", _feature_dropout)
_dropouts("alpha_dropout", neural.alpha_dropout)
_dropouts("feature_alpha_dropout", neural.feature_alpha_dropout)


@composite(public=NO_METHOD)
def rrelu(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """Leaky ReLU with slopes drawn from `lower` to `upper` in training, and their mean otherwise."""
    return neural.rrelu(input, lower, upper, training)


composite("rrelu_", public=NO_METHOD)(inplace_of(rrelu, "rrelu_"))

# ---- embeddings


@composite()
def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """Rows of `weight` at the indices; the row `padding_idx`, unless it is -1, gets no gradient.

    With `sparse`, the gradient of a weight that is a leaf is sparse: it stores a row for each index.
    """
    return embedded(indices, weight, None if padding_idx == -1 else padding_idx, scale_grad_by_freq, sparse)


@composite("embedding_renorm_")
def embedding_renorm_(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Scale the rows of `weight` at the indices down, in place, to a `norm_type`-norm of at most `max_norm`."""
    with using(grad=False):
        return write(weight, op.limit_rows(weight, indices, max_norm, norm_type)._read())


# ---- normalisation


@composite(public=NO_METHOD)
def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Each channel normalised by the batch's statistics, which update the running ones, or by the running ones."""
    del cudnn_enabled
    return neural.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


@composite(public=NO_METHOD)
def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Each channel of each sample normalised over its spatial dims, or by the running statistics."""
    del cudnn_enabled
    return neural.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


@composite(public=NO_METHOD)
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """The last dims scaled to mean 0 and variance 1, then times `weight` plus `bias`."""
    del cudnn_enable
    return op.layer_norm(input, normalized_shape, weight, bias, eps)


@composite(public=NO_METHOD)
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Groups of channels of each sample scaled to mean 0 and variance 1, then times `weight` plus `bias`."""
    del cudnn_enabled
    return op.group_norm(input, num_groups, weight, bias, eps)


@composite(public=NO_METHOD)
def norm_except_dim(v: Tensor, pow: int = 2, dim: Dim = 0) -> Tensor:
    """The `pow`-norm of each slice along `dim`, with size one in the other dims; for -1, of all elements."""
    if dim == -1:
        return op.vector_norm(v, pow)
    at = wrap_dim(dim, v.ndim)
    slices = op.reshape(op.transpose(v, 0, at), (v.shape[at], -1))
    norms = op.reshape(op.vector_norm(slices, pow, 1), [size if d == at else 1 for d, size in enumerate(v.shape)])
    return with_names(norms, names_of(v))


# ---- the rest


@composite(public=NO_METHOD)
def adaptive_max_pool1d(input: Tensor, output_size: object) -> Results:
    """The largest element of each of `output_size` windows, and its position."""
    return op.adaptive_max_pool1d_with_indices(input, output_size)


@composite(public=NO_METHOD)
def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: object,
    stride: object = (),
    padding: object = 0,
    dilation: object = 1,
    ceil_mode: bool = False,
) -> Results:
    """The largest element of each window, and its position."""
    return op.max_pool1d_with_indices(input, kernel_size, stride or None, padding, dilation, ceil_mode)


@composite(public=NO_METHOD)
def constant_pad_nd(input: Tensor, pad: Arg, value: Number = 0) -> Tensor:
    """The tensor padded with `value`. `pad` has pairs (before, after), last dim first; negative amounts cut off."""
    return op.constant_pad(input, tuple(pad), value)


def _method(name: str) -> None:
    """Define the function `name`, which calls the method."""

    @composite(name, doc=f"The method `{name}` as a function.", public=NO_METHOD)
    def function(input: Tensor, *args: object, **kwargs: object) -> Tensor:
        return getattr(input, name)(*args, **kwargs)


for _name in ("detach_", "zero_"):
    _method(_name)


@composite(public=NO_METHOD)
def detach(input: Tensor) -> Tensor:
    """The method `detach` as a function."""
    return input.detach()
