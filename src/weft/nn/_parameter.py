"""Tensors that modules register when they are assigned to an attribute."""

from __future__ import annotations

from typing import Any, Self, TypeVar

from weft._base.guards import is_a
from weft._base.types import Arg
from weft._lazy.native import native
from weft._tensor.base import new_handle, value_of
from weft._tensor.convert import tensor
from weft._tensor.copying import handle_on
from weft._tensor.kind_names import kind_and_advice
from weft._tensor.overriding import disabled, is_dispatching
from weft._tensor.shared import share_between_processes
from weft._tensor.sharing import share
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, GradientError, PreconditionError

T = TypeVar("T", bound=Tensor)


def _of(cls: type[T], data: Tensor | None, kind: str) -> T:
    """A tensor of the class with the elements of `data`: if that has an owner, of a class that is its tensors', too."""
    if data is None:
        data = tensor([])
    if not is_a(data, Tensor):
        raise ArgumentError(f"{kind}(): argument 'data' must be Tensor, not {kind_and_advice(data)}")
    owner = data._read().aval.owner
    result = new_handle(cls if owner is None else owner.type_like(cls))
    share(result, data)
    return result


class _ParameterType(type):
    """Counts tensors of classes with `__torch_dispatch__` of which a parameter was made: they keep their class."""

    def __instancecheck__(cls, instance: object) -> bool:
        return type.__instancecheck__(cls, instance) or (
            cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)
        )


def _of_dispatching(data: Tensor, requires_grad: bool) -> Tensor:
    """The parameter of a tensor whose class computes operators: one of that class, which says so."""
    result = data.detach()
    if type(result) is not type(data):
        raise PreconditionError(
            f"Creating a Parameter from an instance of type {type(data).__name__} requires that detach() returns an "
            f"instance of the same type, but return type {type(result).__name__} was found instead"
        )
    result._is_param = True  # pyright: ignore[reportAttributeAccessIssue]
    return result.requires_grad_(requires_grad)


class Parameter(Tensor, metaclass=_ParameterType):
    """A leaf tensor that modules register as a parameter. It requires a gradient unless `requires_grad` is False.

    It shares its elements with the tensor that it is made from: a write to one changes the other.
    """

    __torch_function__ = disabled

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Self:
        """A parameter that has the elements of `data`; it is distributed if `data` is.

        All is done here, as in PyTorch: a class of a library may have an `__init__` of its own arguments, or none.
        """
        if isinstance(data, Tensor) and is_dispatching(data.__class__):
            parameter: Arg = _of_dispatching(data, requires_grad)
            return parameter
        parameter = _of(cls, data, "Parameter")
        value = value_of(parameter)  # without a question to the class, which may override functions
        if requires_grad and value is not None and not value.aval.dtype.is_differentiable:
            raise GradientError("Only Tensors of floating point and complex dtype can require gradients")
        return parameter._require_grad(requires_grad)

    def __deepcopy__(self, memo: dict[int, Tensor]) -> Tensor:
        if id(self) not in memo:
            memo[id(self)] = handle_on(type(self), self, self.requires_grad)  # as in PyTorch, the copy has no gradient
        return memo[id(self)]

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


if native is not None:
    native.bind(Parameter=Parameter)


_ParameterMeta: Any = type(Parameter)  # for classes of libraries, whose own metaclass derives from it


class Buffer(Tensor):
    """A tensor that modules register as a buffer, and save if it is `persistent`."""

    __torch_function__ = disabled

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Self:
        """A buffer that has the elements of `data`; it is distributed if `data` is."""
        buffer = _of(cls, data, "Buffer")
        buffer.persistent = persistent
        return buffer


share_between_processes(Parameter)
share_between_processes(Buffer)
