"""What libraries ask about a tensor within a transform, under the names of PyTorch's own functions for that."""

from __future__ import annotations

from weft._base.state import ambient
from weft._base.types import AnyCallable
from weft._tensor.examples import Examples
from weft._tensor.tensor import Tensor


def is_batchedtensor(tensor: Tensor) -> bool:
    """Whether a tensor stands for one example within a function of `vmap`, and differs between examples."""
    capture = ambient().capture
    return isinstance(capture, Examples) and capture.result_of(tensor)[1]


def is_legacy_batchedtensor(tensor: Tensor) -> bool:
    """False: PyTorch's former kind of `vmap` is not here."""
    del tensor
    return False


def is_gradtrackingtensor(tensor: Tensor) -> bool:
    """False: within `grad` and its like, tensors are those of every program."""
    del tensor
    return False


is_functionaltensor = is_gradtrackingtensor


def is_functorch_wrapped_tensor(tensor: Tensor) -> bool:
    """`is_batchedtensor`: other transforms wrap nothing."""
    return is_batchedtensor(tensor)


def get_unwrapped(tensor: Tensor) -> Tensor:
    """The tensor itself: there is none within it."""
    return tensor


def name_of_function(func: AnyCallable) -> str:
    """The name of a function, or how it prints."""
    return getattr(func, "__name__", None) or repr(func)
