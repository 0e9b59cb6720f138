"""Results of functional collectives, which PyTorch's programs may wait for."""

from __future__ import annotations

from weft._base.state import ambient
from weft._base.types import Arg
from weft._tensor.base import new_handle
from weft._tensor.overriding import disabled
from weft._tensor.tensor import Tensor


class AsyncCollectiveTensor(Tensor):
    """The result of a functional collective. It is used like any tensor; what is computed from it is a plain one."""

    __torch_function__ = disabled

    def __new__(cls, elem: Tensor) -> AsyncCollectiveTensor:
        """The elements of a tensor, at the same place in the graph."""
        result = new_handle(cls)
        result._value = elem._read()
        return result

    def __init__(self, elem: Tensor) -> None:
        del elem

    @property
    def elem(self) -> Tensor:
        """The same elements as a plain tensor, which is a view."""
        return self.view(self.shape)

    @property
    def completed(self) -> bool:
        """True: what is read of it waits by itself."""
        return True

    def wait(self) -> Tensor:
        """The same elements as a plain tensor, which is a view."""
        return self.elem

    def trigger_wait(self) -> Tensor:
        """`wait()`."""
        return self.elem

    def __repr__(self, **kwargs: Arg) -> str:
        return f"AsyncCollectiveTensor({self.detach()!r})"


def waitable(tensor: Tensor) -> Tensor:
    """The result of a collective, as users get it; the tensor itself while a function is captured, as in PyTorch."""
    return tensor if ambient().capture is not None else AsyncCollectiveTensor(tensor)
