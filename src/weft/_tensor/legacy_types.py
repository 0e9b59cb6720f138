"""Tensors created by calling a class: `Tensor`, and PyTorch's older classes, such as `FloatTensor`."""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.device import META, DeviceLike, canonical
from weft._base.dtype import DType
from weft._base.state import default_dtype
from weft._base.types import Kwargs
from weft._lazy.aval import aval_of
from weft._lazy.value import NO_DATA, Value
from weft._tensor.composite.convert import TYPE_NAMES
from weft._tensor.composite.storage import tensor_of
from weft._tensor.convert import resolve_device
from weft._tensor.overriding import is_dispatching
from weft._tensor.sharing import of_class
from weft._tensor.tensor import Tensor, wrap
from weft.errors import ArgumentError


def new_tensor(cls: type[Tensor], *args: object, device: object = None, **kwargs: object) -> Tensor:
    """`Tensor(...)`: a tensor of the default type, of the given sizes or with the elements of one sequence or array."""
    if kwargs:
        raise ArgumentError(f"new() received an invalid combination of arguments: {', '.join(sorted(kwargs))}")
    dtype = args[0].dtype if len(args) == 1 and isinstance(args[0], Tensor) else default_dtype()
    return of_class(cls, tensor_of(dtype, resolve_device(None), args, device))


def make_subclass(cls: object, data: Tensor, require_grad: bool = False) -> Tensor:
    """A tensor of a subclass that shares the elements of `data`, outside the tape."""
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise ArgumentError(f"cls must be a subclass of Tensor, but got {cls!r}")
    return data.detach().as_subclass(cls)._require_grad(require_grad)


def make_wrapper_subclass(
    cls: object,
    size: Sequence[int],
    strides: Sequence[int] | None = None,
    storage_offset: int | None = None,
    memory_format: object = None,
    dtype: DType | None = None,
    layout: object = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    **policies: object,
) -> Tensor:
    """A tensor of a subclass that has a size, a type and a device, and no elements: the class holds what stands for it.

    Its `__torch_dispatch__` computes operators on it. What reaches the library all the same is computed as on the meta
    device. `strides` are accepted; they are those of elements in a row.
    """
    del strides, storage_offset, memory_format, layout, pin_memory, policies
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise ArgumentError(f"cls must be a subclass of Tensor, but got {cls!r}")
    if not is_dispatching(cls):
        raise ArgumentError(
            f"_make_wrapper_subclass({cls.__name__}): expected a class that defines __torch_dispatch__, since such a "
            "tensor has no elements"
        )
    # On the meta device, whatever device is asked for: so no operator that reaches the library wants elements.
    aval = aval_of(tuple(size), dtype or default_dtype(), device=META)
    result = of_class(cls, wrap(Value(aval, NO_DATA)))._require_grad(requires_grad)
    result.__dict__["_wrapper_device"] = resolve_device(None) if device is None else canonical(device)
    return result


class _LegacyType(type):
    """A class whose instances are the tensors of one element type on devices of one type."""

    dtype: DType
    home: str

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: Kwargs) -> _LegacyType:
        if bases:
            raise ArgumentError(f"type 'torch.{bases[0].__name__}' is not an acceptable base type; derive from Tensor")
        return super().__new__(cls, name, bases, namespace)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor) and instance.dtype is cls.dtype and instance.device.type == cls.home

    def __call__(cls, *args: object, device: DeviceLike | None = None) -> Tensor:
        return tensor_of(cls.dtype, canonical(cls.home), args, device)


def classes_of(home: str, module: str) -> dict[str, type]:
    """The classes of a module, by name. A class called with sizes or elements creates a tensor of its type."""
    return {
        name: _LegacyType(
            name, (), {"dtype": dtype, "home": home, "__module__": module, "__doc__": f"Tensors of `{dtype}`."}
        )
        for name, dtype in ((path.removeprefix("torch."), dtype) for path, dtype in TYPE_NAMES.items())
    }


CLASSES = classes_of("cpu", "torch")


def __getattr__(name: str) -> type:
    try:
        return CLASSES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
