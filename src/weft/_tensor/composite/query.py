"""Queries about tensors, whose results are not tensors."""

from __future__ import annotations

from weft._base import dtype as dtypes
from weft._base.device import device
from weft._base.dtype import DType
from weft._base.size import Size
from weft._base.state import default_dtype
from weft._base.types import Arg, Result
from weft._tensor.alias import shows_changed
from weft._tensor.arguments import operand_or_number
from weft._tensor.codegen import op
from weft._tensor.convert import resolve_device
from weft._tensor.dim_names import names_of
from weft._tensor.functions import composite
from weft._tensor.tensor import Tensor
from weft.errors import ShapeError, ValueRangeError
from weft.ops._table import NO_FUNCTION, NO_METHOD
from weft.ops._type_names import scalar_name


def _fact(name: str) -> None:
    """Define the function `name`, which calls the method of that name."""

    @composite(name, doc=getattr(Tensor, name).__doc__, public=NO_METHOD)
    def fact(input: Tensor) -> Result:
        return getattr(Tensor, name)(input)


for _name in ("numel", "is_floating_point", "is_complex", "is_signed"):
    _fact(_name)


@composite()
def is_tensor(obj: object) -> bool:
    """Whether `obj` is a tensor."""
    return isinstance(obj, Tensor)


@composite()
def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is nonzero. Waits for it."""
    return bool(input)


@composite()
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same sizes."""
    return input.shape == other.shape


@composite()
def get_device(input: Tensor) -> int:
    """The index of the device, or -1 on the CPU."""
    return -1 if input.device.type == "cpu" else input.device.index or 0


@composite(public=NO_FUNCTION)
def ndimension(input: Tensor) -> int:
    """The number of dims."""
    return input.ndim


@composite()
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same sizes, names and elements; NaN equals nothing. Waits for the elements."""
    return input.shape == other.shape and names_of(input) == names_of(other) and bool(op.all(op.eq(input, other)))


@composite()
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether `|input - other| <= atol + rtol * |other|` everywhere. Waits for the elements."""
    return bool(op.all(op.isclose(input, other, rtol, atol, equal_nan)))


_SHAPES: tuple[type, ...] = (int, tuple, list)


@composite()
def broadcast_shapes(*shapes: Arg) -> Size:
    """The size of a pointwise operator's result on tensors of these sizes; each is a sequence or an int.

    `ValueError` for a negative size, `RuntimeError` for other types and for sizes that do not broadcast.
    """
    inputs: list[Size] = []
    for shape in shapes:
        if not isinstance(shape, _SHAPES):
            raise ShapeError(f"Input shapes should be of type ints, a tuple of ints, or a list of ints, got {shape}")
        inputs.append(Size((shape,) if isinstance(shape, int) else shape))
        if min(inputs[-1], default=0) < 0:
            raise ValueRangeError("Attempting to broadcast a dimension with negative length!")
    result = [1] * max(map(len, inputs), default=0)
    for at, sizes in enumerate(inputs):
        for dim in range(-1, -1 - len(sizes), -1):
            if sizes[dim] not in (1, result[dim]) and result[dim] != 1:
                raise ShapeError(
                    f"Attempting to broadcast a dimension of length {sizes[dim]} at {dim}! Mismatching argument at "
                    f"index {at} had {tuple(sizes)}; but expected shape should be broadcastable to {result}"
                )
            result[dim] = result[dim] if sizes[dim] == 1 else sizes[dim]
    return Size(result)


def _never(name: str, why: str) -> None:
    """Define the query `name`, which always returns False."""

    @composite(name, doc=f"False: {why}.")
    def question(input: Tensor) -> bool:
        return False


for _name, _why in (("is_distributed", "elements belong to one process"),):
    _never(_name, _why)


@composite()
def is_inference(input: Tensor) -> bool:
    """Whether it was created in inference mode: it cannot be saved for backward, nor written outside of that mode."""
    return input._read().aval.inference


@composite()
def is_conj(input: Tensor) -> bool:
    """Whether it is a view that shows its elements conjugated."""
    return input._read().aval.dtype.is_complex and shows_changed(input)


@composite()
def is_neg(input: Tensor) -> bool:
    """Whether it is a view that shows its elements negated, as the imaginary part of a conjugate does."""
    return not input._read().aval.dtype.is_complex and shows_changed(input)


# ---- types


@composite()
def typename(obj: Arg) -> str:
    """The name of a tensor's type, such as "torch.FloatTensor", or of any other object's class."""
    if isinstance(obj, Tensor):
        return f"torch.{scalar_name(obj.dtype)}Tensor"
    named = obj if isinstance(obj, type) or hasattr(obj, "__qualname__") else type(obj)
    module = getattr(named, "__module__", "") or ""
    return named.__qualname__ if module in ("", "builtins") else f"{module}.{named.__qualname__}"


@composite()
def result_type(tensor1: object, tensor2: object) -> DType:
    """The type of an operator's result on two tensors or numbers."""
    avals = [operand_or_number(x, name, "result_type").aval for x, name in ((tensor1, "tensor1"), (tensor2, "tensor2"))]
    return dtypes.result_type(tuple([(a.dtype, len(a.shape), a.weak) for a in avals]), default_dtype())


@composite()
def promote_types(type1: DType, type2: DType) -> DType:
    """The smallest type to which both can be cast, by PyTorch's rules."""
    return dtypes.promote_types(type1, type2)


@composite()
def can_cast(from_: DType, to: DType) -> bool:
    """Whether an in-place result of type `from_` may be written to a tensor of type `to`."""
    return dtypes.can_cast(from_, to)


@composite()
def get_default_device() -> device:
    """The device of new tensors."""
    return resolve_device(None)
