"""Layers that take their number of input features from their first input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from weft._base.device import DeviceLike
from weft._base.dtype import DType, int64
from weft._base.state import using
from weft._base.types import Arg
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.errors import PreconditionError, ShapeError, ValueRangeError
from weft.nn._conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from weft.nn._lazy_module import LazyModuleMixin
from weft.nn._lazy_parameter import UninitializedBuffer, UninitializedParameter
from weft.nn._linear import Linear
from weft.nn._norm import BatchNorm1d, BatchNorm2d, BatchNorm3d, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d

if TYPE_CHECKING:
    from weft.nn._module import Module


class _LazyLayer(LazyModuleMixin):
    """A layer whose number of inputs is 0 until the first call; `_inputs` is the name of that attribute."""

    _inputs: str
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]

    def _defer(self, weight: bool, bias: bool, device: DeviceLike | None, dtype: DType | None) -> None:
        """Replace the empty weight and bias, which the constructor made, by uninitialised parameters."""
        for name, present in (("weight", weight), ("bias", bias)):
            self._parameters[name] = UninitializedParameter(device=device, dtype=dtype) if present else None

    def reset_parameters(self) -> None:
        """Draw new parameters, if their shapes are known."""
        if not self.has_uninitialized_params() and getattr(self, self._inputs):
            super().reset_parameters()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  the layer's

    def _give_shapes(self, weight: tuple[int, ...], bias: tuple[int, ...], **buffers: tuple[int, ...]) -> None:
        shapes = {"weight": weight, "bias": bias, **buffers}
        with using(grad=False):
            for name, tensor in (*self._parameters.items(), *self._buffers.items()):
                if tensor is not None and name in shapes:
                    tensor.materialize(shapes[name])
            self.reset_parameters()


L = TypeVar("L", bound=_LazyLayer)


def _lazy(base: type[L], layer: type[Module], inputs: str) -> type[L]:
    """The class of layers that become `layer` at their first call."""
    name = layer.__name__
    doc = f"`{name}` that takes `{inputs}` from its first input."
    lazy: Any = type(f"Lazy{name}", (base, layer), {"cls_to_become": layer, "__doc__": doc, "__module__": __name__})
    return lazy


class LazyLinear(_LazyLayer, Linear):
    """A `Linear` that takes `in_features` from the last dim of its first input."""

    cls_to_become = Linear
    _inputs = "in_features"

    def __init__(
        self, out_features: int, bias: bool = True, device: DeviceLike | None = None, dtype: DType | None = None
    ) -> None:
        super().__init__(0, 0, False)
        self.out_features = out_features
        self._defer(True, bias, device, dtype)

    def initialize_parameters(self, input: Tensor) -> None:
        """Set `in_features`, and the shapes of weight and bias, from the input."""
        if self.has_uninitialized_params():
            self.in_features = input.shape[-1]
            self._give_shapes((self.out_features, self.in_features), (self.out_features,))
        elif not self.in_features:  # a state dict has set the shapes
            if input.shape[-1] != self.weight.shape[-1]:
                raise PreconditionError(
                    f"The in_features inferred from input: {input.shape[-1]} is not equal to in_features from "
                    f"self.weight: {self.weight.shape[-1]}"
                )
            self.in_features = input.shape[-1]


class _LazyConvNd(_LazyLayer):
    _inputs = "in_channels"
    in_channels: int
    out_channels: int
    groups: int
    _dims: int
    _weight_shape: Callable[[], tuple[int, ...]]

    def initialize_parameters(self, input: Tensor, *args: Arg, **kwargs: Arg) -> None:
        """Set `in_channels`, and the shapes of weight and bias, from the input."""
        del args, kwargs
        if not self.has_uninitialized_params():
            return
        n = self._dims
        if input.ndim not in (n + 1, n + 2):
            raise ShapeError(
                f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {type(self).__name__}, but got input of "
                f"size: {input.shape}"
            )
        channels = input.shape[-n - 1]
        if channels % self.groups:
            raise ValueRangeError("in_channels must be divisible by groups")
        self.in_channels = channels
        self._give_shapes(self._weight_shape(), (self.out_channels,))


class _LazyConv(_LazyConvNd):
    def __init__(
        self,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: str | int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)
        self.out_channels = out_channels
        self._defer(True, bias, device, dtype)


LazyConv1d, LazyConv2d, LazyConv3d = (_lazy(_LazyConv, layer, "in_channels") for layer in (Conv1d, Conv2d, Conv3d))


class _LazyConvTranspose(_LazyConvNd):
    def __init__(
        self,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: str | int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | Sequence[int] = 1,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode)
        self.out_channels = out_channels
        self._defer(True, bias, device, dtype)


LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = (
    _lazy(_LazyConvTranspose, layer, "in_channels") for layer in (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
)


class _LazyNorm(_LazyLayer):
    _inputs = "num_features"

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False)
        self.affine = affine
        self.track_running_stats = track_running_stats
        self._defer(affine, affine and bias, device, dtype)
        if track_running_stats:
            for name in ("running_mean", "running_var"):
                self._buffers[name] = UninitializedBuffer(device=device, dtype=dtype)
            self._buffers["num_batches_tracked"] = op.zeros((), dtype=int64, device=device)

    def initialize_parameters(self, input: Tensor) -> None:
        """Set `num_features`, and the shapes of weight, bias and running statistics, from the input."""
        if self.has_uninitialized_params():
            self.num_features = input.shape[1]
            size = (self.num_features,)
            self._give_shapes(size, size, running_mean=size, running_var=size)


LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d = (
    _lazy(_LazyNorm, layer, "num_features") for layer in (BatchNorm1d, BatchNorm2d, BatchNorm3d)
)
LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d = (
    _lazy(_LazyNorm, layer, "num_features") for layer in (InstanceNorm1d, InstanceNorm2d, InstanceNorm3d)
)
