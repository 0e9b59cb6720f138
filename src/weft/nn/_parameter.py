"""Tensors that modules register when they are assigned to an attribute."""

from __future__ import annotations

from typing import Self, TypeVar

from weft._base.guards import is_a
from weft._base.types import Arg
from weft._lazy.native import native
from weft._tensor.base import new_handle
from weft._tensor.convert import tensor
from weft._tensor.copying import handle_on
from weft._tensor.kind_names import kind_and_advice
from weft._tensor.overriding import disabled, is_dispatching
from weft._tensor.shared import share_between_processes
from weft._tensor.sharing import share
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, GradientError, PreconditionError

T = TypeVar("T", bound=Tensor)


def _new(cls: type[T], data: object) -> T:
    """An object of the class or, for a tensor with an owner, of a class that is also that of its tensors."""
    owner = data._read().aval.owner if isinstance(data, Tensor) else None
    return new_handle(cls if owner is None else owner.type_like(cls))


def _share(target: Tensor, data: Tensor | None, kind: str) -> None:
    if data is None:
        data = tensor([])
    if not is_a(data, Tensor):
        raise ArgumentError(f"{kind}(): argument 'data' must be Tensor, not {kind_and_advice(data)}")
    share(target, data)


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

    def __new__(cls, data: Arg = None, *args: Arg, **kwargs: Arg) -> Self:
        """A parameter that has the elements of `data`; it is distributed if `data` is."""
        if is_dispatching(type(data)):
            parameter: Arg = _of_dispatching(data, kwargs.get("requires_grad", args[0] if args else True))
            return parameter
        return _new(cls, data)

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        _share(self, data, "Parameter")
        if requires_grad and not self.dtype.is_differentiable:
            raise GradientError("Only Tensors of floating point and complex dtype can require gradients")
        self.requires_grad_(requires_grad)

    def __deepcopy__(self, memo: dict[int, Tensor]) -> Tensor:
        if id(self) not in memo:
            memo[id(self)] = handle_on(type(self), self, self.requires_grad)  # as in PyTorch, the copy has no gradient
        return memo[id(self)]

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


if native is not None:
    native.bind(Parameter=Parameter)


_ParameterMeta = type(Parameter)  # for classes of libraries, whose own metaclass derives from it


class Buffer(Tensor):
    """A tensor that modules register as a buffer, and save if it is `persistent`."""

    __torch_function__ = disabled

    persistent: bool

    def __new__(cls, data: Arg = None, *args: Arg, **kwargs: Arg) -> Self:
        """A buffer that has the elements of `data`; it is distributed if `data` is."""
        return _new(cls, data)

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True) -> None:
        _share(self, data, "Buffer")
        self.persistent = persistent


share_between_processes(Parameter)
share_between_processes(Buffer)
