"""What quantized tensors consist of: integers, and the grid on which they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn, cast

from weft._base.dtype import QUANTIZED, DType, float32, from_numpy
from weft._base.guards import is_tuple
from weft._base.layout import (
    per_channel_affine,
    per_channel_affine_float_qparams,
    per_tensor_affine,
    qscheme,
    quantized,
)
from weft._base.types import Kwargs
from weft._dispatch import apply
from weft._lazy.aval import AnyOwner
from weft._lazy.infer import Call
from weft._lazy.value import Value
from weft._tensor.codegen import op as rows
from weft._tensor.composed import Encoding, composed, encoding_of
from weft._tensor.tensor import Results, Tensor, wrap
from weft.errors import DTypeError, LayoutError, ShapeError, UnsupportedCallError
from weft.ops._table import Arithmetic, OpDef
from weft.ops._type_names import scalar_name

_PUBLIC = {"batch_norm_eval": "batch_norm", "batch_norm_train": "batch_norm"}
"""Rows with names that users do not know, and the functions that they belong to."""

_FUNCTIONAL = "nn.quantized.FloatFunctional().{} in the model before it is prepared, so that the result has a grid"
_INSTEAD = {
    **{name: _FUNCTIONAL.format(name) for name in ("add", "mul", "matmul", "cat")},
    **dict.fromkeys(("linear", "conv", "batch_norm"), "a layer that prepare() or prepare_fx() has seen"),
}
"""What to use instead of an operator."""


@dataclass(eq=False, repr=False)
class Quantized(Encoding):
    """An encoding of tensors with the elements `(values - zero_point) * scale`.

    values      the integers
    scale       of all elements, without dims; or one for each index along `axis`
    zero_point  likewise
    element     the type as users get it, such as `quint8`
    """

    layout = quantized
    kind = "Quantized"
    advice = "use x.dequantize() first"
    alternative = "export or trace the float model, before it is quantized, or "

    scale: Tensor
    zero_point: Tensor
    element: DType
    axis: int | None = None

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self.element

    @property
    def scheme(self) -> qscheme:
        """How integers stand for numbers."""
        if self.axis is None:
            return per_tensor_affine
        return per_channel_affine_float_qparams if self.zero_point.is_floating_point() else per_channel_affine

    def with_values(self, values: Tensor) -> Tensor:
        """A tensor of other integers on the same grid."""
        return composed(replace(self, size=values.shape, values=values))

    def whole_array(self) -> Tensor:
        """The elements as float32."""
        return rows.dequantize_affine(self.values, self.scale, self.zero_point, self.axis)

    def quantize(self, x: Tensor) -> Tensor:
        """Float numbers put on the same grid."""
        return quantized_with(x, self.scale, self.zero_point, self.axis, self.element)

    def uniform(self, name: str) -> Quantized:
        """Itself; `RuntimeError` if it has a grid for each index of a dim."""
        if self.axis is not None:
            raise LayoutError(f"{name}(): possible only on uniformly quantized tensors, and this one is {self.scheme}")
        return self

    def apply(self, call: Call, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
        """Compute a row; one that writes through a view writes integers."""
        base = inputs[0].aval.owner
        if not call.op.name.endswith("_write") or base is not self:
            return super().apply(call, inputs)
        written = cast("Quantized", inputs[1].aval.owner)
        if written.axis is not None or written.scale is not self.scale or written.zero_point is not self.zero_point:
            written = encoding_of(self.uniform("copy_").quantize(written.whole_array()))
        integers = [wrap(x) for x in apply(call, (self.values._read(), written.values._read(), *inputs[2:]))]
        return tuple([self.with_values(x)._read() for x in integers])

    def derived(self, op: OpDef, args: Sequence[object], kwargs: Kwargs) -> Results:
        """Rows that only move elements move the integers."""
        tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and is_quantized(x)]
        if op.types.arithmetic is not Arithmetic.NONE or len(tensors) != 1 or tensors[0] is not args[0]:
            raise self.refusal(op.name)
        if op.name not in _KEEP_DIMS:
            self.uniform(op.name)
        moved = getattr(rows, op.name)(self.values, *args[1:], **kwargs)
        if not is_tuple(moved):
            return self.with_values(moved)
        results: tuple[Tensor, ...] = moved
        return tuple([self.with_values(x) if x.dtype is self.values.dtype else x for x in results])

    def refusal(self, name: str, why: str = "") -> UnsupportedCallError:
        """The error for an operator that integers on a grid do not have."""
        backend = f"Quantized{self.values.device.type.upper()}"
        name = _PUBLIC.get(name, name)
        instead = _INSTEAD.get(name, "what ao.nn.quantized has")
        return UnsupportedCallError(
            f"Could not run 'aten::{name}' with arguments from the '{backend}' backend: quantized tensors do not have "
            f"{name}(){why}; use x.dequantize(), or {instead}"
        )

    def created(self, size: Sequence[int], create: Callable[[Sequence[int], int], Value], row: str) -> NoReturn:
        """Refuses `zeros_like` and its like, whose results would be on a grid that does not fit them."""
        del size, create
        raise self.refusal(f"{row}_like", ", empty_like() and others that make tensors like them")

    def to_owner(self, value: Value, owner: AnyOwner | None) -> Value:
        """A value that is written: float numbers are put on the grid; quantized ones bring their own."""
        own = value.aval.owner
        if owner is None:
            raise LayoutError(
                "Copying from quantized Tensor to non-quantized Tensor is not allowed, please use dequantize to get a "
                "float Tensor from a quantized Tensor"
            )
        assert isinstance(owner, Quantized), "nothing else asks"
        if own is None:
            return owner.quantize(wrap(value))._read()
        if not isinstance(own, Quantized) or own.element is not owner.element:
            raise DTypeError(f"Quantized copy only works with the same data type: {value.aval.dtype} and {self.dtype}")
        return value


_KEEP_DIMS = frozenset({"clone", "alias", "detach", "copy"})
"""Rows that leave all dims where they are, so that a grid for each index of one fits the result."""


def is_quantized(x: object) -> bool:
    """Whether an argument is a quantized tensor."""
    return isinstance(x, Tensor) and isinstance(encoding_of(x), Quantized)


def quantized_encoding(x: Tensor, name: str) -> Quantized:
    """The encoding of a quantized tensor; `NotImplementedError` for others."""
    encoding = encoding_of(x)
    if not isinstance(encoding, Quantized):
        raise UnsupportedCallError(
            f"Could not run 'aten::{name}' with arguments from the '{x.device.type.upper()}' backend: the tensor is "
            "not quantized; use torch.quantize_per_tensor first"
        )
    return encoding


def grid_tensor(values: Tensor, scale: Tensor, zero_point: Tensor, axis: int | None, dtype: DType) -> Tensor:
    """The quantized tensor of these integers."""
    if axis is not None:
        require_channels(values, scale, zero_point, axis)
    return composed(Quantized(values.shape, values, scale, zero_point, dtype, axis))


def require_channels(x: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> None:
    """`RuntimeError` unless there are a scale and a zero point for each index along `axis`."""
    for name, entries in (("scales", scale), ("zero_points", zero_point)):
        if tuple(entries.shape) != (x.shape[axis],):
            raise ShapeError(f"length of {name} must equal to channel, expected {x.shape[axis]} got, {entries.numel()}")


def quantized_with(x: Tensor, scale: Tensor, zero_point: Tensor, axis: int | None, dtype: DType) -> Tensor:
    """The quantized tensor nearest to a float32 tensor."""
    if x.dtype is not float32:
        raise DTypeError(f"Quantize only works on Float Tensor, got {scalar_name(x.dtype)}; use x.float() first")
    if dtype not in QUANTIZED:
        raise DTypeError(
            f"ScalarType {dtype} is not supported in new_qtensor; use one of {', '.join(map(str, QUANTIZED))}"
        )
    if axis is not None:
        require_channels(x, scale, zero_point, axis)
    values = rows.quantize_affine(x.detach(), scale, zero_point, axis, from_numpy(dtype.numpy))
    return grid_tensor(values, scale, zero_point, axis, dtype)
