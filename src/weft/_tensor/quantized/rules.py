"""Rules of quantized tensors, beside those that only move elements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from weft._base.dtype import float64, int64, qint8, quint8
from weft._base.guards import is_tuple
from weft._tensor.codegen import op as rows
from weft._tensor.composed import on_whole, rule
from weft._tensor.quantized.encoding import Quantized, grid_tensor, is_quantized, quantized_encoding, quantized_with
from weft._tensor.tensor import Results, Tensor
from weft.errors import DTypeError, LayoutError
from weft.ops._dims import wrap_dim
from weft.ops._table import TABLE


def _on_same_grid(name: str, input: Tensor, *args: object, **kwargs: object) -> Tensor:
    """The row on numbers, whose result is put on the input's grid."""
    if not is_quantized(input):
        raise DTypeError(
            f"{name}(): a quantized tensor stands beside an input that is not quantized; quantize it as well, or use "
            "x.dequantize()"
        )
    encoding = quantized_encoding(input, name).uniform(name)
    return encoding.quantize(on_whole(name, encoding.whole_array(), *args, **kwargs))


def _on_unit_grid(name: str, input: Tensor) -> Tensor:
    """The row on numbers, whose result is put on the grid that covers its range with as many levels as there are."""
    encoding = quantized_encoding(input, name).uniform(name)
    if encoding.element not in (quint8, qint8):
        raise DTypeError(f"{name}(): {encoding.element} is not supported; use quint8 or qint8")
    signed, symmetric = encoding.element is qint8, name == "tanh"
    scale, zero = (2 if symmetric or signed else 1) / 256, 128 if symmetric and not signed else 0
    if signed and not symmetric:
        scale, zero = 1 / 256, -128
    on_grid = [rows.full((), x, dtype=dtype, device=input.device) for x, dtype in ((scale, float64), (zero, int64))]
    return quantized_with(on_whole(name, encoding.whole_array()), on_grid[0], on_grid[1], None, encoding.element)


for _name in ("eq", "ne", "lt", "le", "gt", "ge", "not_equal", "less", "less_equal", "greater", "greater_equal"):
    rule(Quantized, _name)(partial(on_whole, _name))

for _name in (
    *("hardtanh", "relu6", "leaky_relu", "elu", "celu", "gelu", "hardswish", "threshold", "prelu"),
    *(
        "clamp",
        "clamp_min",
        "clamp_max",
        "clip",
        "mean",
        "interpolate_to",
        "pad",
        "constant_pad",
        "masked_fill",
        "fill",
    ),
    *(name for name in TABLE if name.startswith(("avg_pool", "adaptive_avg_pool"))),
):
    rule(Quantized, _name)(partial(_on_same_grid, _name))

for _name in ("sigmoid", "tanh", "hardsigmoid"):
    rule(Quantized, _name)(partial(_on_unit_grid, _name))


@rule(Quantized, "relu")
def _relu(input: Tensor) -> Tensor:
    encoding = quantized_encoding(input, "relu").uniform("relu")
    return encoding.with_values(rows.maximum(encoding.values, encoding.zero_point.to(encoding.values.dtype)))


def _extreme(name: str, input: Tensor, *args: object, **kwargs: object) -> Results:
    """A row that chooses elements: the largest number has the largest integer."""
    encoding = quantized_encoding(input, name).uniform(name)
    chosen = getattr(rows, name)(encoding.values, *args, **kwargs)
    return (encoding.with_values(chosen[0]), *chosen[1:]) if is_tuple(chosen) else encoding.with_values(chosen)


for _name in ("max_dim", "min_dim", "amax", "amin"):
    rule(Quantized, _name)(partial(_extreme, _name))


def _joined(name: str, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Tensors put together on the grid of the first one."""
    if not all(map(is_quantized, tensors)):
        raise DTypeError(f"{name}(): expected all tensors to be quantized, or none; use x.dequantize()")
    first = quantized_encoding(tensors[0], name).uniform(name)
    encodings = [quantized_encoding(x, name).uniform(name) for x in tensors]
    if any(encoding.element is not first.element for encoding in encodings):
        kinds = ", ".join(str(encoding.element) for encoding in encodings)
        raise DTypeError(f"{name}(): quantized tensors must have one data type, but have {kinds}")
    if all(encoding.scale is first.scale and encoding.zero_point is first.zero_point for encoding in encodings):
        return first.with_values(getattr(rows, name)([encoding.values for encoding in encodings], dim))
    return first.quantize(getattr(rows, name)([encoding.whole_array() for encoding in encodings], dim))


for _name in ("cat", "concat", "concatenate", "stack"):
    rule(Quantized, _name)(partial(_joined, _name))


@rule(Quantized, "copy")
def _copy(input: Tensor, src: Tensor) -> Tensor:
    if not is_quantized(input):
        raise LayoutError(
            "Copying from quantized Tensor to non-quantized Tensor is not allowed, please use dequantize to get a "
            "float Tensor from a quantized Tensor"
        )
    encoding = quantized_encoding(input, "copy_")
    if not is_quantized(src):
        return encoding.quantize(rows.broadcast_to(src, tuple(input.shape)))
    if src.dtype is not input.dtype:
        raise DTypeError(f"Quantized copy only works with the same data type, but got {src.dtype} for {input.dtype}")
    return src if src.shape == input.shape else rows.broadcast_to(src, tuple(input.shape))


def _part(name: str, input: Tensor, dim: int, *bounds: object) -> Tensor:
    """Slices along a dim. If there is a grid for each of them, the result has theirs; for one slice that is uniform."""
    encoding = quantized_encoding(input, name)
    cut = getattr(rows, name)
    values, scale, zero_point, axis = (
        cut(encoding.values, dim, *bounds),
        encoding.scale,
        encoding.zero_point,
        encoding.axis,
    )
    if axis is None:
        return encoding.with_values(values)
    at = wrap_dim(dim, input.ndim)
    if at == axis:
        scale, zero_point = cut(scale, 0, *bounds), cut(zero_point, 0, *bounds)
        if scale.numel() == 1:
            scale, zero_point, axis = scale.reshape(()), zero_point.reshape(()), None
    elif at < axis and values.ndim < input.ndim:
        axis -= 1
    return grid_tensor(values, scale, zero_point, axis, encoding.element)


for _name in ("select", "slice_dim"):
    rule(Quantized, _name)(partial(_part, _name))


@rule(Quantized, "unsqueeze")
def _unsqueeze(input: Tensor, dim: int) -> Tensor:
    encoding = quantized_encoding(input, "unsqueeze")
    axis = encoding.axis
    if axis is not None and wrap_dim(dim, input.ndim + 1) <= axis:
        axis += 1
    return grid_tensor(
        rows.unsqueeze(encoding.values, dim), encoding.scale, encoding.zero_point, axis, encoding.element
    )
