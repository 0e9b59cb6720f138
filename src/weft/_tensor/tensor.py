"""The tensor: a mutable handle on values."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from math import prod
from typing import Any, Protocol, Self, TypeAlias, TypeVar, cast, overload

import numpy as np

from weft._autograd.graph import hooks_of
from weft._base.capture import active_capture
from weft._base.device import CPU, META, device
from weft._base.handles import Handle
from weft._base.overriding import Overridden
from weft._base.site import UNTIL_USER, end_at_user, warn_user
from weft._base.size import Size
from weft._base.state import ambient
from weft._base.types import Arg, PyTree
from weft._lazy.external import taken_in
from weft._lazy.infer import Call
from weft._lazy.moving import moved_array
from weft._lazy.native import native
from weft._lazy.owner import Owner
from weft._lazy.refusal import require_dim
from weft._lazy.role import Hooks, Interior, Leaf, Retained, Role
from weft._lazy.value import Value
from weft._tensor import sharing, view
from weft._tensor.alias import owner_of
from weft._tensor.assigned_grad import require_gradient
from weft._tensor.base import TensorBase
from weft._tensor.cotangents import as_cotangent, as_gradient_of
from weft._tensor.dim_names import position, set_names
from weft._tensor.external import array_over
from weft._tensor.kind_names import advice, kind_and_advice, kind_of
from weft._tensor.overriding import become_overriding, dispatched, require_not_overridden
from weft._tensor.state import NO_FACTS, Facts, item
from weft._tensor.view import own
from weft.errors import (
    ArgumentError,
    ConversionError,
    DTypeError,
    GradientError,
    SettingError,
    ValueRangeError,
)
from weft.ops._kinds import Scalar
from weft.ops._type_names import scalar_name

N = TypeVar("N", int, float, complex)
Results: TypeAlias = Any
"""What a row or a composite returns: a tensor, or several in a tuple; the arguments say which. Stubs have overloads."""

_new = object.__new__
NO_GRADIENT = "Only Tensors of floating point and complex dtype can require gradients"
_COUNTS = ("no values", "more than one value")
_NO_GRAD = (
    "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
    "populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf Tensor, "
    "use .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure you access the "
    "leaf Tensor instead."
)
"""The error for new tensors whose element type has no gradients."""


class Tensor(TensorBase):
    """An array of numbers of one type, with PyTorch's operators; it can take part in backward passes.

    Operators are recorded when called, and computed when a value is needed. The tensor is a mutable handle: an in-place
    operator makes it refer to another value, and never changes a value that is saved for a backward pass.
    """

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        become_overriding(cls)

    # --- what it is -------------------------------------------------------------------------------------------

    def _refreshed(self) -> Value:
        return view.refresh(self)

    @property
    def shape(self) -> Size:
        """Sizes of the dims."""
        return self._read().aval.size

    @overload
    def size(self, dim: None = None) -> Size: ...
    @overload
    def size(self, dim: int | str) -> int: ...
    def size(self, dim: int | str | None = None) -> Size | int:
        """Sizes of the dims, or of one of them."""
        if dim is None:
            return self.shape
        if isinstance(dim, str) and self._read().aval.names is not None:
            dim = position(self, dim)
        return self.shape[require_dim(dim, self.ndim)]

    @property
    def device(self) -> device:
        """The device of the elements."""
        return self._read().aval.device

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self._read().aval.shape)

    def dim(self) -> int:
        """The number of dims."""
        return self.ndim

    def numel(self) -> int:
        """The number of elements."""
        return prod(self._read().aval.size)

    nelement = numel

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.numel() * self.itemsize

    def is_floating_point(self) -> bool:
        """Whether the element type is a real floating type."""
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        """Whether the element type is complex."""
        return self.dtype.is_complex

    def is_signed(self) -> bool:
        """Whether the element type has negative numbers."""
        return self.dtype.is_signed

    # --- gradients --------------------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to this tensor. It can be set on leaves only."""
        return self._read().role is not None

    @requires_grad.setter
    def requires_grad(self, wanted: object) -> None:
        if not isinstance(wanted, bool):
            raise GradientError("requires_grad must be a bool")
        self._require_grad(wanted, "only Tensors of floating point and complex dtype can require gradients")

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set whether a gradient is accumulated in `.grad`; only for floating and complex leaves."""
        return self._require_grad(requires_grad, "only Tensors of floating point dtype can require gradients")

    def _set_requires_grad(self, requires_grad: object, refusal: str) -> Self:
        if not isinstance(requires_grad, bool):
            raise ArgumentError(
                f"requires_grad_(): argument 'requires_grad' must be bool, not {type(requires_grad).__name__}"
            )
        value = self._read()
        if isinstance(value.role, Interior):
            if not requires_grad:
                raise GradientError(
                    "you can only change requires_grad flags of leaf variables. If you want to use a computed variable "
                    "in a subgraph that doesn't require differentiation use var_no_grad = var.detach()."
                )
            return self
        if requires_grad and not value.aval.dtype.is_differentiable:
            raise GradientError(f"{refusal or NO_GRADIENT}, this one is {self.dtype}")
        if requires_grad is (value.role is not None):
            return self
        if requires_grad and value.aval.inference and not ambient().inference:
            raise GradientError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")
        active_capture().changes(self, "whether a tensor requires a gradient")
        if self._alias is not None:
            sharing.detach_view(self)
        self._value = fresh = own(value)
        if requires_grad:
            if self._role is None:
                self._role = Leaf()
            self._role.owner = weakref.ref(self)
            fresh.role = self._role
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether this is not a result of an operator through which gradients flow."""
        role = self._read().role
        return not isinstance(role, Interior)

    @property
    def grad(self) -> Tensor | None:
        """The sum of the gradients of all backward passes, or None.

        A warning says so where there can be none, as for the result of an operator without `retain_grad()`.
        """
        grad = self._grad
        if grad is None and not (self.is_leaf or self.retains_grad):
            warn_user(_NO_GRAD)
        return grad

    @grad.setter
    def grad(self, grad: Tensor | None) -> None:
        self._grad = grad

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @property
    def _grad(self) -> Tensor | None:
        """As `grad`, without a warning."""
        role = self._role
        if role is not None and (capture := ambient().capture) is not None:
            capture.reads_grad(role)
        return None if role is None else role.grad

    @_grad.setter
    def _grad(self, grad: Tensor | None) -> None:
        if grad is not None:
            require_gradient(grad, self)
        elif self._role is None:
            return
        if self._role is None:
            self._role = Leaf()
        capture = ambient().capture
        if capture is not None:
            capture.writes_grad(self._role, reads=False)
        self._role.grad = grad

    def retain_grad(self) -> None:
        """Accumulate the gradient in `.grad` even if the tensor is not a leaf."""
        if not self.requires_grad:
            raise GradientError("can't retain_grad on Tensor that has requires_grad=False")
        if self.is_leaf or self.retains_grad:
            return
        kept = self._role = self._role or Retained()

        aval = self._read().aval

        def keep(grad: Value) -> None:
            named = wrap(as_gradient_of(aval, grad))
            kept.grad = named if kept.grad is None else kept.grad + named

        kept.hooks = Hooks({Role.KEEP: keep})  # for what the tensor becomes by writes
        hooks_of(self._read())[Role.KEEP] = keep

    @property
    def retains_grad(self) -> bool:
        """Whether `retain_grad` was called."""
        return self._role is not None and self._role.hooks is not None and not self.is_leaf

    @property
    def _backward_hooks(self) -> dict[int, Callable[[Tensor], object]] | None:
        """The hooks that `register_hook` has put on the gradient; libraries ask for them by this name."""
        role = self._read().role
        return None if role is None or not role.hooks else {k: f for k, f in role.hooks.items() if k != Role.KEEP}

    def register_hook(self, hook: Callable[[Tensor], object]) -> Handle:
        """Call `hook(grad)` when the gradient is complete; a result other than None replaces the gradient."""
        if not self.requires_grad:
            raise GradientError("cannot register a hook on a tensor that doesn't require gradient")

        aval = self._read().aval

        def on_value(grad: Value) -> Value | None:
            replacement = hook(wrap(as_gradient_of(aval, grad)))
            if replacement is None:
                return None
            if not isinstance(replacement, Tensor):
                kind = kind_of(replacement)
                raise ArgumentError(f"expected Variable, but hook returned '{kind}'{advice(replacement)}")
            return as_cotangent(operand(replacement), aval, f"the result of hook '{on_value.__name__}'")

        on_value.__name__ = getattr(hook, "__name__", "<unknown>")  # how errors name it
        return Handle(hooks_of(self._read()), on_value)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> Handle:
        """Call `hook(tensor)` when a leaf's gradient has been added to `.grad`."""
        role = self._read().role
        if role is None:
            raise GradientError("cannot register a hook on a tensor that doesn't require gradient")
        if not isinstance(role, Leaf):
            raise GradientError("post accumulate grad hooks cannot be registered on non-leaf tensors")
        if role.post_hooks is None:
            role.post_hooks = {}
        return Handle(role.post_hooks, hook)

    def detach(self) -> Tensor:
        """A view of the same elements through which no gradient flows."""
        try:
            if native is not None:
                detached = native.detach(self)
                if detached is not None:
                    return detached
            return view.make_detached_view(wrap(own(operand(self))), self)
        except Overridden as signal:
            return dispatched(signal)
        except UNTIL_USER as error:
            end_at_user(error)
            raise

    def detach_(self) -> Tensor:
        """Make it a leaf, without history. The gradient that it has accumulated stays."""
        if self._is_view():
            raise GradientError("Can't detach views in-place. Use detach() instead.")
        value = self._read()
        if value.role is not None:
            active_capture().changes(self, "whether a tensor requires a gradient")
            grad, self._value, self._role = self._grad, own(value), None
            self._grad = grad
            if self._alias is not None and self._alias.tracked:
                sharing.detach_view(self)
        return self

    @property
    def data(self) -> Tensor:
        """The same elements, outside the tape. Assign to replace them and keep the tensor object."""
        return self.detach()

    @data.setter
    def data(self, source: object) -> None:
        if not isinstance(source, Tensor):
            raise ArgumentError(f"Variable data has to be a tensor, but got {kind_and_advice(source)}")
        names = self._read().aval.names
        sharing.set_data(self, source)
        aval = self._read().aval
        if names is not None and aval.names is None and len(names) == len(aval.shape):
            set_names(self, names)

    @data.deleter
    def data(self) -> None:
        raise SettingError("Deleting tensor data is not allowed. Delete tensor instead!")

    # --- aliases ----------------------------------------------------------------------------------------------

    def _is_view(self) -> bool:
        return self._base is not None

    @property
    def _base(self) -> Tensor | None:
        """The base, if it is a view through which gradients flow to it."""
        alias = self._alias
        return cast("Tensor", alias.base) if alias is not None and alias.tracked and not alias.hidden else None

    @property
    def _version(self) -> int:
        """How often the elements were written, through any alias."""
        return owner_of(self)._writes

    # --- values -----------------------------------------------------------------------------------------------

    def item(self) -> Scalar:
        """The only element, as a Python number."""
        try:
            return item(self)
        except Overridden as signal:
            return dispatched(signal)
        except UNTIL_USER as error:
            end_at_user(error)
            raise

    def tolist(self) -> PyTree:
        """The elements as nested lists of Python numbers."""
        return self._host().tolist()

    def numpy(self, *, force: bool = False) -> np.ndarray[Any, Any]:
        """The elements as a NumPy array; on the CPU, whoever writes to one of the two writes to the other.

        A tensor that requires a gradient is refused where gradients are recorded, and one whose elements are shown
        conjugated or negated; `force` gives the array of `detach().resolve_conj().resolve_neg()`. `TypeError` for
        types that NumPy has not. A program that keeps the array while it computes with the tensor pays a copy of the
        elements for each use.
        """
        if force:
            return self.detach().resolve_conj().resolve_neg().numpy()
        if self.requires_grad and ambient().grad:
            raise GradientError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        if self.device is META:
            raise ArgumentError("can't convert meta device type tensor to numpy: it has no elements")
        if self.dtype.numpy.isbuiltin != 1:  # one of ml_dtypes
            raise ArgumentError(
                f"Got unsupported ScalarType {scalar_name(self.dtype)}: NumPy has no such type. Use x.float().numpy(), "
                "or view the bits as those of an integer type"
            )
        if self.device is not CPU or owner_of(self)._read().aval.owner is not None:
            return self._host()  # a copy, as the elements are no single array on the CPU
        active_capture().needs_elements(self._read())
        return array_over(self)

    def __array__(self, dtype: Arg = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise ConversionError(f"Boolean value of Tensor with {_COUNTS[self.numel() > 0]} is ambiguous")
        try:
            return bool(item(self, True))
        except Overridden as signal:
            return dispatched(signal)

    def _single(self, kind: Callable[[Scalar], N]) -> N:
        if self.numel() != 1:
            raise ValueRangeError("only one element tensors can be converted to Python scalars")
        item = self.item()
        if isinstance(item, complex) and kind is not complex:
            if item.imag:
                word = "double" if kind is float else "int64_t"
                raise DTypeError(f"value cannot be converted to type {word} without overflow: it is complex")
            item = item.real
        return kind(item)

    def __int__(self) -> int:
        return self._single(int)

    def __float__(self) -> float:
        return self._single(float)

    def __complex__(self) -> complex:
        return self._single(complex)

    def __index__(self) -> int:
        if self.dtype.is_differentiable or self.numel() != 1:
            raise ArgumentError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __len__(self) -> int:
        if not self.ndim:
            raise ArgumentError("len() of a 0-d tensor")
        return self.shape[0]

    def __hash__(self) -> int:
        return id(self)

    def __reversed__(self) -> Tensor:
        return self.flip(0)

    __array_priority__ = 1000  # NumPy leaves mixed arithmetic to the tensor


class TensorOwner(Owner[Call, Value, Tensor], Protocol):
    """What owners derive from. Unless one says otherwise, values have arrays, and tensors no class of their own."""

    tensor_type: type[Tensor] = Tensor

    def move(self, value: Value, target: device) -> Value:
        """A value of this owner, whose array is a copy on another device."""
        return moved_array(value, target)


# --- between tensors and values ---------------------------------------------------------------------------------


def _wrap(value: Value) -> Tensor:
    """A new handle on a value."""
    owner = value.aval.owner
    tensor: Tensor = _new(Tensor if owner is None else owner.tensor_type)
    tensor._facts = NO_FACTS
    tensor._value = value
    return tensor


def placed_with(x: Tensor, new: Tensor) -> Tensor:
    """A new plain tensor, of data that every process has, beside `x` in a call: distributed, if that is."""
    distributed, value = x._read().aval.distributed, new._read()
    if distributed is None or value.aval.owner is not None:
        return new
    return _wrap(distributed.whole(value, new.shape))


def _operand(x: Arg, *, name: str = "", op: str = "") -> Value:
    """The value of a tensor; `TypeError` for anything else."""
    if isinstance(x, Tensor):
        value = x._read()
        capture = ambient().capture
        if capture is not None:
            value = taken_in(value)
            capture.read(x, value)
        return value
    require_not_overridden(x)
    raise ArgumentError(f"{op}(): argument '{name}' must be Tensor, not {kind_and_advice(x)}")


wrap, operand = _wrap, _operand
"""`_wrap` and `_operand`, or their twins in the extension."""
if native is not None:
    native.bind(Tensor=Tensor, Facts=Facts, NO_FACTS=NO_FACTS, wrap=_wrap, operand=_operand)
    wrap, operand = native.wrap, native.operand
