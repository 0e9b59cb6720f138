"""Multi-head attention, as a function of all its weights."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft._base.dtype import DType, bool_
from weft._base.site import warn_user
from weft._base.state import ambient
from weft._tensor.codegen import op
from weft._tensor.composite.neural import dropout, scaled_dot_product_attention
from weft._tensor.composite.neural import pad as padded
from weft._tensor.dim_names import names_of, unnamed, with_names
from weft._tensor.functions import composite
from weft._tensor.tensor import Results, Tensor
from weft.errors import DimNameError, PreconditionError, ShapeError, UnsupportedError
from weft.ops._dims import Names
from weft.ops._table import IN_FUNCTIONAL


@dataclass(frozen=True, slots=True)
class Projections:
    """The weights of multi-head attention.

    `weights` are those of queries, keys and values: one tensor, or three. `added` are a key and a value that are
    appended to every sequence; `fixed` are keys and values (batch * heads, length, features) used instead of projected
    ones.
    """

    heads: int
    weights: Tensor | Sequence[Tensor]
    bias: Tensor | None
    out_weight: Tensor
    out_bias: Tensor | None
    added: tuple[Tensor, Tensor] | None = None
    fixed: tuple[Tensor | None, Tensor | None] = (None, None)
    zero_attention: bool = False


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    projections: Projections,
    dropout_p: float,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    need_weights: bool,
    average: bool,
) -> tuple[Tensor, Tensor | None]:
    """Attended values (batch, length, features), and the weights or None; inputs have the batch as first dim.

    Lengths of queries and keys may have one name, as in attention of a sequence to itself: then the weights have it
    only for the queries. So all is computed by position.
    """
    _check_inputs(query, key, value, projections)
    batch, length, source = _names(query, key, value, key_padding_mask, attn_mask)
    weights_names = (batch, length, source) if average else (batch, None, length, source)
    bare = {id(x): unnamed(x) for x in (query, key, value)}
    query, key, value = (bare[id(x)] for x in (query, key, value))
    key_padding_mask, attn_mask = (None if mask is None else unnamed(mask) for mask in (key_padding_mask, attn_mask))
    q, k, v = _projected(query, key, value, projections)  # (batch, length, features)
    if projections.added is not None:
        k, v = (
            op.cat([x, row.expand((x.shape[0], 1, -1))], 1) for x, row in zip((k, v), projections.added, strict=True)
        )
    q, k, v = (x.unflatten(-1, (projections.heads, -1)).transpose(1, 2) for x in (q, k, v))
    k, v = (_fixed(x, value, name) for x, value, name in zip((k, v), projections.fixed, "kv", strict=True))
    if projections.zero_attention:
        k, v = (padded(x, (0, 0, 0, 1)) for x in (k, v))
    bias = mask_bias(key_padding_mask, attn_mask, q, key.shape[1], k.shape[2])
    weights = None
    if need_weights:
        if ambient().context.attention is not None:
            raise UnsupportedError(
                "multi_head_attention_forward: need_weights is not supported where sequences are split over processes, "
                "as within context_parallel; pass need_weights=False"
            )
        scores = op.matmul(q * math.sqrt(1 / q.shape[-1]), k.transpose(-2, -1))
        weights = dropout(op.softmax(scores if bias is None else scores + bias, -1), dropout_p)
        output = op.matmul(weights, v)
        weights = with_names(weights.mean(1) if average else weights, weights_names)
    else:
        output = scaled_dot_product_attention(q, k, v, bias, dropout_p)
    result = op.linear(output.transpose(1, 2).flatten(2), projections.out_weight, projections.out_bias)
    return with_names(result, (batch, length, names_of(result)[2])), weights


def _names(
    query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, mask: Tensor | None
) -> tuple[str | None, str | None, str | None]:
    """The names of the batch, of queries and of keys; `RuntimeError` where inputs or masks disagree."""
    inputs = {"query": query, "key": key, "value": value, "key_padding_mask": padding, "attn_mask": mask}
    own = {name: names_of(x) for name, x in inputs.items() if x is not None}
    source = own["key"][1] or own["value"][1]
    itself = source is not None and own["query"][1] == source  # no mask can have this name for queries and for keys
    of_queries, of_keys = {"attn_mask": -2}, {"value": 1, "key_padding_mask": 1} | ({} if itself else {"attn_mask": -1})
    return (
        _one_name(own, "batch", {"query": 0, "key": 0, "value": 0, "key_padding_mask": 0}),
        _one_name(own, "queries", {"query": 1, **of_queries}),
        _one_name(own, "keys", {"key": 1, **of_keys}),
    )


def _one_name(own: Mapping[str, Names], what: str, dims: Mapping[str, int]) -> str | None:
    """The name that all of these dims have that have one."""
    places: dict[str, str] = {}
    for x, dim in dims.items():
        if x in own and (name := own[x][dim]) is not None:
            places.setdefault(name, f"'{name}' ({x}, which has dims {list(own[x])})")
    if len(places) > 1:
        first, second, *_ = places.values()
        raise DimNameError(
            f"multi_head_attention_forward: Expected the dim of the {what} to have one name, but it is {first} and "
            f"{second}."
        )
    return next(iter(places), None)


def _check_inputs(query: Tensor, key: Tensor, value: Tensor, projections: Projections) -> None:
    if not isinstance(projections.weights, Tensor):
        if key.shape[:2] != value.shape[:2]:
            raise PreconditionError(
                f"key's sequence and batch dims {_length_first(key)[:2]} do not match value's "
                f"{_length_first(value)[:2]}"
            )
    elif key.shape != value.shape:
        raise PreconditionError(f"key shape {_length_first(key)} does not match value shape {_length_first(value)}")
    size = query.shape[-1]
    if size % projections.heads:
        raise PreconditionError(f"embed_dim {size} not divisible by num_heads {projections.heads}")


def require_width(query: Tensor, width: int) -> None:
    """Refuse queries whose number of features is not `width`."""
    if query.shape[-1] != width:
        raise PreconditionError(f"was expecting embedding dimension of {width}, but got {query.shape[-1]}")


def _length_first(x: Tensor) -> str:
    batch, length, *rest = x.shape
    return f"torch.Size({[length, batch, *rest]})"


def _projected(query: Tensor, key: Tensor, value: Tensor, projections: Projections) -> Sequence[Tensor]:
    weights, bias = projections.weights, projections.bias
    if isinstance(weights, Tensor):
        if query is key is value:
            return op.linear(query, weights, bias).chunk(3, -1)
        weights = weights.chunk(3)
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return tuple(map(op.linear, (query, key, value), weights, biases))


def _fixed(x: Tensor, fixed: Tensor | None, name: str) -> Tensor:
    """Keys or values given as `static_k` or `static_v`, as (batch, heads, length, features)."""
    if fixed is None:
        return x
    batch, heads, _, features = x.shape
    if fixed.shape[0] != batch * heads:
        raise PreconditionError(f"expecting static_{name}.size(0) of {batch * heads}, but got {fixed.shape[0]}")
    if fixed.shape[2] != features:
        raise PreconditionError(f"expecting static_{name}.size(2) of {features}, but got {fixed.shape[2]}")
    return fixed.unflatten(0, (batch, heads))


def mask_bias(padding: Tensor | None, mask: Tensor | None, q: Tensor, heads: int, keys: int) -> Tensor | None:
    """The bias of the scores, which broadcasts to (batch, heads, queries, keys); or None."""
    if mask is not None and padding is not None and mask.dtype is not padding.dtype:
        warnings.warn(
            "Support for mismatched key_padding_mask and attn_mask is deprecated. Use same type for both instead.",
            stacklevel=6,
        )
    terms: list[Tensor] = []
    if mask is not None:
        terms.append(_additive(_by_head(mask, q, heads), q, "attn_mask"))
    if padding is not None:
        for dim, (wanted, size) in enumerate(zip((q.shape[0], heads), padding.shape, strict=True)):
            if wanted != size:
                raise PreconditionError(f"Expected key_padded_mask.shape[{dim}] to be {wanted}, but got {size}")
        terms.append(_additive(padding, q, "key_padding_mask")[:, None, None, :])
    terms = [padded(term, (0, keys - term.shape[-1])) for term in terms]  # the appended keys are never masked
    return None if not terms else terms[0] if len(terms) == 1 else terms[0] + terms[1]


def _by_head(mask: Tensor, q: Tensor, keys: int) -> Tensor:
    """A mask of (queries, keys), or of (batch * heads, queries, keys) with the first dim split."""
    batch, heads, queries, _ = q.shape
    sizes = {2: (queries, keys), 3: (batch * heads, queries, keys)}.get(mask.ndim)
    if sizes is None:
        raise ShapeError(f"attn_mask's dimension {mask.ndim} is not supported")
    if tuple(mask.shape) != sizes:
        raise ShapeError(f"The shape of the {mask.ndim}D attn_mask is {mask.shape}, but should be {sizes}.")
    return mask if mask.ndim == 2 else mask.unflatten(0, (batch, heads))


def _additive(mask: Tensor, like: Tensor, name: str) -> Tensor:
    if mask.dtype is bool_:
        zeros = op.zeros(tuple(mask.shape), dtype=like.dtype, device=like.device)
        return zeros.masked_fill(mask, -math.inf)
    if not mask.is_floating_point():
        raise PreconditionError(f"only bool and floating types of {name} are supported")
    return mask.to(like.dtype)


_MASK_DIMS = {  # descriptions and numbers of dims, with and without a batch
    "key_padding_mask": ((" or 2-D", (2,)), (" or 1-D", (1,))),
    "attn_mask": ((", 2-D or 3-D", (2, 3)),) * 2,
}


def is_batched(query: Tensor, key: Tensor, value: Tensor, heads: int, **masks: Tensor | None) -> bool:
    """Whether the inputs have a batch dim; raises if they disagree."""
    if query.ndim not in (2, 3):
        raise PreconditionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.ndim}-D query tensor"
        )
    batched = query.ndim == 3
    case = "For batched (3-D) `query`" if batched else "For unbatched (2-D) `query`"
    if not query.ndim == key.ndim == value.ndim:
        raise PreconditionError(
            f"{case}, expected `key` and `value` to be {query.ndim}-D but found {key.ndim}-D and {value.ndim}-D "
            "tensors respectively"
        )
    sizes = (heads, query.shape[0], key.shape[0])
    for name, mask in masks.items():
        words, allowed = _MASK_DIMS[name][not batched]
        if mask is not None and mask.ndim not in allowed:
            raise PreconditionError(
                f"{case}, expected `{name}` to be `None`{words} but found {mask.ndim}-D tensor instead"
            )
        if mask is not None and mask.ndim == 3 and not batched and tuple(mask.shape) != sizes:
            raise PreconditionError(f"Expected `{name}` shape to be {sizes} but got {mask.shape}")
    return batched


def require_mask(attn_mask: Tensor | None, is_causal: bool) -> None:
    """Refuse the hint that a mask is causal if there is no mask."""
    if is_causal and attn_mask is None:
        raise ShapeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method "
            "`generate_square_subsequent_mask` to create this mask."
        )


def _input_weights(
    in_proj_weight: Tensor | None, separate: bool, **named: Tensor | None
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """The weights of the input projections: one tensor, or three."""
    if not separate:
        if in_proj_weight is None:
            raise PreconditionError("use_separate_proj_weight is False but in_proj_weight is None")
        return in_proj_weight
    weights: list[Tensor] = []
    for name, weight in named.items():
        if weight is None:
            raise PreconditionError(f"use_separate_proj_weight is True but {name} is None")
        weights.append(weight)
    query, key, value = weights
    return query, key, value


def _added(bias_k: Tensor | None, bias_v: Tensor | None, static_k: object, static_v: object) -> Results:
    """The key and the value that are appended to every sequence, or None."""
    if bias_k is None and bias_v is None:
        return None
    for here, name, other, lacking in ((bias_k, "bias_k", bias_v, "bias_v"), (bias_v, "bias_v", bias_k, "bias_k")):
        if here is not None and other is None:
            raise PreconditionError(f"{name} is set but {lacking} is None")
    for static, name in ((static_k, "key"), (static_v, "value")):
        if static is not None:
            raise PreconditionError(f"bias cannot be added to static {name}.")
    return bias_k, bias_v


@composite(public=IN_FUNCTIONAL)
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """`nn.MultiheadAttention` as a function; inputs are (length, batch, features), or (length, features).

    `static_k` and `static_v` (batch * heads, length, features / heads) are used instead of projected keys and values.
    """
    batched = is_batched(query, key, value, num_heads, key_padding_mask=key_padding_mask, attn_mask=attn_mask)
    require_mask(attn_mask, is_causal)
    require_width(query, embed_dim_to_check)
    weights = _input_weights(
        in_proj_weight,
        use_separate_proj_weight,
        q_proj_weight=q_proj_weight,
        k_proj_weight=k_proj_weight,
        v_proj_weight=v_proj_weight,
    )
    projections = Projections(
        num_heads,
        weights,
        in_proj_bias,
        out_proj_weight,
        out_proj_bias,
        _added(bias_k, bias_v, static_k, static_v),
        (static_k, static_v),
        add_zero_attn,
    )
    query, key, value = batch_first((query, key, value), (0, 1) if batched else None)
    padding = key_padding_mask if batched or key_padding_mask is None else key_padding_mask.unsqueeze(0)
    p = dropout_p if training else 0.0
    output, attn_weights = attend(
        query, key, value, projections, p, padding, attn_mask, need_weights, average_attn_weights
    )
    if batched:
        return output.transpose(0, 1), attn_weights
    return output.squeeze(0), None if attn_weights is None else attn_weights.squeeze(0)


def batch_first(inputs: Sequence[Tensor], swapped: tuple[int, int] | None) -> Sequence[Tensor]:
    """The inputs with two dims swapped, or with a new batch dim; inputs that are the same object stay so."""
    swaps = {id(x): op.unsqueeze(x, 0) if swapped is None else op.transpose(x, *swapped) for x in inputs}
    return [swaps[id(x)] for x in inputs]


def canonical_mask(
    mask: Tensor | None,
    mask_name: str,
    other_type: DType | None,
    other_name: str,
    target_type: DType,
    check_other: bool = True,
) -> Tensor | None:
    """A mask as numbers to add: -inf where a bool mask is true. Warns if another mask has another type."""
    if mask is None:
        return None
    if mask.dtype is not bool_ and not mask.dtype.is_floating_point:
        raise PreconditionError(f"only bool and floating types of {mask_name} are supported, got {mask.dtype}")
    if check_other and other_type not in (None, mask.dtype):
        warn_user(f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type for both instead.")
    if mask.dtype.is_floating_point:
        return mask
    return op.where(mask, float("-inf"), op.zeros(tuple(mask.shape), dtype=target_type, device=mask.device))


def none_or_dtype(input: Tensor | None) -> DType | None:
    """The type of a mask, if there is one."""
    return None if input is None else input.dtype
