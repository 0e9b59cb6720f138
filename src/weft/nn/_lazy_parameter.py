"""Parameters and buffers whose shape is not known yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, Self, SupportsIndex

from weft._base.device import DeviceLike, device
from weft._base.dtype import DType
from weft._base.state import default_dtype
from weft._base.types import AnyCallable, Arg, Args, Result
from weft._tensor.base import new_handle
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor, operand
from weft._tensor.view import own
from weft.errors import ShapeError, ValueRangeError
from weft.nn._parameter import Buffer, Parameter


def _delegated(name: str) -> AnyCallable:
    """A method that is called on the empty tensor that stands for an uninitialised one."""

    def method(self: UninitializedTensorMixin, *args: Arg, **kwargs: Arg) -> Result:
        return getattr(self.data, name)(*args, **kwargs)

    return method


class UninitializedTensorMixin:
    """The methods that work before the shape is known: reading and changing type and device, and `materialize`.

    An empty tensor stands for the elements. Other operations raise `ValueError`; reading the shape raises
    `RuntimeError`.
    """

    cls_to_become: type[Tensor]
    _blank: Any

    def __new__(cls, *args: Arg, **kwargs: Arg) -> Self:
        kind: Any = cls  # a class of tensors, too
        return new_handle(kind)

    def _begin(self, requires_grad: bool, device: DeviceLike | None, dtype: DType | None) -> None:
        self._value = None
        self._blank = op.zeros((0,), dtype=dtype or default_dtype(), device=device)
        self._wanted = requires_grad

    def _read(self) -> NoReturn:
        raise ValueRangeError(
            "Attempted to use an uninitialized parameter. This error happens when you are using a `LazyModule` or "
            f"explicitly manipulating `torch.nn.parameter.{type(self).__name__}` objects. When using LazyModules Call "
            "`forward` with a dummy batch to initialize the parameters before calling torch functions"
        )

    def materialize(self, shape: Sequence[int], device: DeviceLike | None = None, dtype: DType | None = None) -> None:
        """Become an ordinary tensor of this shape, whose elements are arbitrary. Type and device stay unless given."""
        value = op.zeros(shape, dtype=dtype or self.dtype, device=device or self.device)
        requires_grad = self._wanted
        del self._blank, self._wanted
        self._value = own(operand(value))
        self.__class__ = self.cls_to_become  # pyright: ignore[reportAttributeAccessIssue]  an ordinary tensor now
        self.requires_grad_(requires_grad)

    @property
    def shape(self) -> NoReturn:
        """Raises `RuntimeError`: the shape is not known yet."""
        raise ShapeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
            "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. Call `forward` "
            "to initialize the parameters before accessing their attributes."
        )

    @property
    def data(self) -> Tensor:
        """An empty tensor of the type and on the device that the elements will have."""
        return self._blank

    @data.setter
    def data(self, source: Tensor) -> None:
        self._blank = source.detach()

    @property
    def dtype(self) -> DType:
        """The type that the elements will have."""
        return self._blank.dtype

    @property
    def device(self) -> device:
        """The device on which the elements will be."""
        return self._blank.device

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient will be accumulated."""
        return self._wanted

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        self._wanted = wanted

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set whether a gradient is accumulated once there are elements."""
        self._wanted = requires_grad
        return self

    @property
    def is_leaf(self) -> bool:
        """True."""
        return True

    size, is_floating_point, is_complex = _delegated("size"), _delegated("is_floating_point"), _delegated("is_complex")
    to, cpu, cuda = _delegated("to"), _delegated("cpu"), _delegated("cuda")
    half, float, double, bfloat16 = (
        _delegated("half"),
        _delegated("float"),
        _delegated("double"),
        _delegated("bfloat16"),
    )

    def share_memory_(self) -> NoReturn:
        """Raises `RuntimeError`: there are no elements to share yet."""
        raise ShapeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters "
            "before calling `module.share_memory()`."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __copy__(self) -> Tensor:
        make, arguments = self.__reduce_ex__(4)
        return make(*arguments)

    def __deepcopy__(self, memo: dict[int, Tensor]) -> Tensor:
        if id(self) not in memo:
            memo[id(self)] = self.__copy__()
        return memo[id(self)]

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[AnyCallable, Args]:
        del protocol
        return type(self), (self.requires_grad, self.device, self.dtype)


class UninitializedParameter(UninitializedTensorMixin, Parameter):  # pyright: ignore[reportIncompatibleMethodOverride]
    """A parameter whose shape is set by the first call of its lazy module."""

    cls_to_become = Parameter

    def __init__(
        self, requires_grad: bool = True, device: DeviceLike | None = None, dtype: DType | None = None
    ) -> None:
        self._begin(requires_grad, device, dtype)


class UninitializedBuffer(UninitializedTensorMixin, Buffer):  # pyright: ignore[reportIncompatibleMethodOverride]
    """A buffer whose shape is set by the first call of its lazy module."""

    cls_to_become = Tensor

    def __init__(
        self,
        requires_grad: bool = False,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
        persistent: bool = True,
    ) -> None:
        self._begin(requires_grad, device, dtype)
        self.persistent = persistent

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[AnyCallable, Args]:
        make, arguments = super().__reduce_ex__(protocol)
        return make, (*arguments, self.persistent)


def is_lazy(param: object) -> bool:
    """Whether this is an uninitialised parameter or buffer."""
    return isinstance(param, UninitializedTensorMixin)
