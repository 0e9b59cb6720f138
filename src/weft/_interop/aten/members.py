"""What classes with `__torch_dispatch__` have in place of members of `Tensor` that read elements, or the device."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from weft._base.device import device
from weft._base.types import Arg, Result
from weft._interop.aten import functions
from weft._tensor.tensor import Tensor
from weft.ops._aten import aten

assert functions.__name__, "what finds operators is set by import"


def _reading(convert: Callable[[Arg], Result]) -> Callable[[Tensor], Result]:
    """A method that reads the only element by its operator."""

    def read(self: Tensor) -> Result:
        return convert(aten._local_scalar_dense(self))

    return read


def _device(self: Tensor) -> device:
    """The device that the tensor was made with, which has no elements; or that of its elements."""
    own = self.__dict__.get("_wrapper_device")
    return _DEVICE.__get__(self) if own is None else own


_DEVICE: Any = Tensor.device


def _deepcopy(self: Tensor, memo: dict[int, Arg]) -> Tensor:
    """What `clone` makes, with copies of the attributes."""
    if id(self) not in memo:
        copy = self.detach().clone()
        memo[id(self)] = copy
        copy.__dict__.update(deepcopy(self.__dict__, memo))
        copy.requires_grad_(self.requires_grad)
    return memo[id(self)]


def _on_device(name: str) -> property:
    return property(lambda self: self.device.type == name)


_MEMBERS: dict[str, Arg] = {
    **{f"__{kind.__name__}__": _reading(kind) for kind in (bool, int, float, complex)},
    "__index__": _reading(int),
    "__deepcopy__": _deepcopy,
    "device": property(_device),
    **{f"is_{name}": _on_device(name) for name in ("cpu", "cuda", "meta", "xla", "xpu", "mps")},
}


def attach(kind: type[Tensor]) -> None:
    """Give a class these members, where it has none of its own."""
    for name, member in _MEMBERS.items():
        if getattr(kind, name, None) is getattr(Tensor, name, None):
            setattr(kind, name, member)
