"""What libraries ask about a tensor within a transform, under the names of PyTorch's own functions for that."""

from __future__ import annotations

from weft._base.state import ambient
from weft._base.types import AnyCallable
from weft._tensor.examples import Examples
from weft._tensor.tensor import Tensor
from weft.errors import UnsupportedCallError


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


def add_batch_dim(tensor: Tensor, in_dim: int, level: int) -> Tensor:
    """Raises `NotImplementedError`: what stands for one example is made by `vmap` alone."""
    del tensor, in_dim, level
    raise UnsupportedCallError(
        "_add_batch_dim: tensors of one example are made by weft.vmap alone; map a function of tensors instead, and "
        "put them into a container of one's own within it"
    )


def remove_batch_dim(tensor: Tensor, level: int, batch_size: int, out_dim: int) -> Tensor:
    """Raises `NotImplementedError`, as `add_batch_dim` does."""
    return add_batch_dim(tensor, out_dim, level)


def maybe_remove_batch_dim(name: str, tensor: Tensor, level: int, batch_size: int, out_dim: int | None) -> Tensor:
    """Raises `NotImplementedError`, as `add_batch_dim` does."""
    return remove_batch_dim(tensor, level, batch_size, out_dim or 0)


def name_of_function(func: AnyCallable) -> str:
    """The name of a function, or how it prints."""
    return getattr(func, "__name__", None) or repr(func)


def are_transforms_active() -> bool:
    """Whether this runs within a function of `vmap` or of a gradient transform."""
    state = ambient()
    return isinstance(state.capture, Examples) or state.context.transform is not None
