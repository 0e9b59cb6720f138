"""The functions of `weft.nested`."""

from __future__ import annotations

import numpy as np

from weft._base.dtype import DType
from weft._base.guards import is_list_or_tuple
from weft._base.layout import jagged, layout, strided
from weft._base.state import default_dtype
from weft._base.types import Arg
from weft._tensor.arguments import sizes
from weft._tensor.codegen import op
from weft._tensor.composed import encoding_of
from weft._tensor.convert import tensor
from weft._tensor.functions import composite
from weft._tensor.nested.encoding import is_nested
from weft._tensor.nested.jagged import jagged_from, jagged_of
from weft._tensor.nested.strided import strided_from, strided_of
from weft._tensor.nested.tensor import NestedTensor
from weft._tensor.sparse.coo import on_device
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, LayoutError, ShapeError
from weft.ops._table import Public


def _components(tensor_list: Arg, dtype: DType | None, device: Arg) -> list[Tensor]:
    """The entries of a list, each as a tensor."""
    if not is_list_or_tuple(tensor_list):
        raise ArgumentError("Only lists (List[Tensor] and List[List...[Scalar]]) are accepted in nested_tensor")
    components = [x if isinstance(x, Tensor) else tensor(x, dtype=dtype, device=device) for x in tensor_list]
    if dtype is not None or device is not None:
        components = [x.to(device=device, dtype=dtype) if device is not None else x.to(dtype) for x in components]
    return components


def _nested(components: list[Tensor], target: layout | None) -> Tensor:
    """A nested tensor from its components, in a layout."""
    if target not in (None, strided, jagged):
        raise LayoutError(f"Specified layout is unsupported for nested tensors: {target!r}")
    if target is jagged:
        return _jagged(components)
    for at, x in enumerate(components):
        if x.ndim != components[0].ndim:
            raise ShapeError(
                "All Tensors given to nested_tensor must have the same dimension. Found dimension "
                f"{x.ndim} for Tensor at index {at} and dimension {components[0].ndim} for Tensor at index 0."
            )
    if not components:
        return strided_of(op.zeros((0,), dtype=default_dtype()), ())
    return strided_from(components)


def _jagged(components: list[Tensor]) -> Tensor:
    if not components:
        raise LayoutError("Cannot construct a nested tensor from an empty tensor list")
    if len({x.ndim for x in components}) != 1:
        raise LayoutError("When constructing a nested tensor, all tensors in list must have the same dim")
    if not components[0].ndim:
        raise LayoutError("Cannot construct a nested tensor from a list of zero-dim tensors")
    differing = [d for d in range(components[0].ndim) if len({x.shape[d] for x in components}) != 1]
    if len(differing) > 1:
        raise LayoutError(
            "Cannot represent given tensor list as a nested tensor with the jagged layout. Note that the jagged layout "
            "only allows for a single ragged dimension. For example: (B, *, D_0, D_1, ..., D_N), with ragged * dim."
        )
    return jagged_from(components, differing[0] + 1 if differing else 1)


@composite(public=Public(module="nested"))
def nested_tensor(
    tensor_list: object,
    *,
    dtype: DType | None = None,
    layout: layout | None = None,
    device: object = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A new leaf with copies of tensors (or lists of numbers) of different sizes as its components.

    With `layout=torch.jagged`, they may differ in one dim only, and most operators run on all of them at once; with
    the default, `torch.strided`, they may have any sizes, with one number of dims.
    """
    del pin_memory
    components = [x.detach() for x in _components(tensor_list, dtype, device)]
    result = _nested(components, layout)
    return result.requires_grad_() if requires_grad else result


@composite(public=Public(module="nested"))
def as_nested_tensor(ts: Arg, dtype: DType | None = None, device: Arg = None, layout: layout | None = None) -> Tensor:
    """A nested tensor of components, to which gradients flow: a list, or the slices of a tensor."""
    if isinstance(ts, Tensor):
        if is_nested(ts):
            if layout not in (None, encoding_of(ts).layout):
                return _nested(list(ts.unbind()), layout)
            return ts
        ts = list(ts.unbind())
    elif not is_list_or_tuple(ts) or not all(isinstance(x, Tensor) for x in ts):
        raise ArgumentError("as_nested_tensor(): Expected first argument to be a tensor or a list / tuple of tensors ")
    return _nested(_components(ts, dtype, device), layout)


@composite(public=Public(module="nested"))
def nested_tensor_from_jagged(
    values: Tensor,
    offsets: Tensor | None = None,
    lengths: Tensor | None = None,
    jagged_dim: int | None = None,
    min_seqlen: int | None = None,
    max_seqlen: int | None = None,
) -> Tensor:
    """The nested tensor whose component `n` is `values[offsets[n] : offsets[n + 1]]`, a view; gradients flow to values.

    `lengths` without offsets are the sizes of components; with them, what is beyond a length is a gap. `jagged_dim`,
    by default 1, is the dim of the result in which components differ. `min_seqlen` and `max_seqlen` are not needed.
    """
    del min_seqlen, max_seqlen
    ragged = 1 if jagged_dim is None else jagged_dim
    if not 1 <= ragged <= values.ndim:
        raise LayoutError(f"nested_tensor_from_jagged(): jagged_dim must be from 1 to {values.ndim}, but got {ragged}")
    if offsets is None:
        if lengths is None:
            raise LayoutError("nested_tensor_from_jagged(): At least one of offsets or lengths is required.")
        ends = np.cumsum(lengths.detach()._host())
        return jagged_of(values, on_device(np.concatenate([[0], ends]), lengths), ragged)
    return jagged_of(values, offsets, ragged, lengths)


@composite(public=Public(module="nested"))
def to_padded_tensor(input: Tensor, padding: float, output_size: object = None) -> Tensor:
    """A dense tensor with the components of a nested one, which end with `padding`."""
    if not isinstance(input, NestedTensor):
        raise LayoutError(f"to_padded_tensor(): the input must be nested, but has layout {input.layout!r}")
    size = None if output_size is None else sizes(output_size, "output_size", "to_padded_tensor")
    return input.to_padded_tensor(padding, size)


@composite(public=Public(module="nested"))
def narrow(tensor: Tensor, dim: int, start: object, length: object, layout: layout = strided) -> Tensor:
    """Of each slice along dim 0, the part from `start` of this `length`; both may be tensors with one for each."""
    if dim != 1:
        raise LayoutError(f"nested.narrow: dim must be 1, but got {dim}")
    count = tensor.shape[0]
    starts, spans = (
        np.broadcast_to(np.asarray(x.detach()._host() if isinstance(x, Tensor) else x), (count,))
        for x in (start, length)
    )
    parts = [tensor[at].narrow(0, int(a), int(n)) for at, (a, n) in enumerate(zip(starts, spans, strict=True))]
    return _nested(parts, layout)


@composite(public=Public(module="nested"))
def masked_select(tensor: Tensor, mask: Tensor) -> Tensor:
    """The elements where `mask` is true, as a jagged tensor with a component for each slice along dim 0."""
    if tensor.layout is not strided:
        raise LayoutError(f"torch.nested.masked_select requires a strided tensor, given {tensor.layout!r}")
    wide = mask.expand(tuple(tensor.shape))
    counts = wide.detach()._host().reshape(tensor.shape[0], -1).sum(1)
    offsets = on_device(np.concatenate([[0], np.cumsum(counts)]), tensor)
    return jagged_of(tensor[wide], offsets)
