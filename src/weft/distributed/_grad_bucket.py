"""The argument of communication hooks, and checks of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft._base.guards import is_list_or_tuple
from weft._base.state import using
from weft._base.types import Arg, Result
from weft._tensor.codegen import op as rows
from weft._tensor.composite.shape import split
from weft._tensor.tensor import Tensor
from weft.errors import GradientError, OptionError
from weft.futures import Future, is_future


class GradBucket:
    """The gradients of a bucket, concatenated in one tensor."""

    def __init__(self, index: int, buffer: Tensor, parameters: Sequence[Tensor], last: bool) -> None:
        self._index = index
        self._buffer = buffer
        self._parameters = list(parameters)
        self._last = last

    def index(self) -> int:
        """The number of the bucket; 0 is sent first."""
        return self._index

    def buffer(self) -> Tensor:
        """All gradients, flat."""
        return self._buffer

    def set_buffer(self, buffer: Tensor) -> None:
        """Replace the buffer by another tensor of the same size."""
        self._buffer = buffer

    def gradients(self) -> list[Tensor]:
        """The gradients in the shapes of their parameters: views of the buffer."""
        return split_like(self._buffer, self._parameters)

    def parameters(self) -> list[Tensor]:
        """The parameters to which the gradients belong."""
        return list(self._parameters)

    def is_last(self) -> bool:
        """Whether this is the last bucket of the pass."""
        return self._last


Hook = Callable[[Arg, GradBucket], Future[Result]]


def split_like(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Views of consecutive parts of a flat tensor, in the shapes of `like`."""
    parts = split(flat, [p.numel() for p in like])
    return [rows.view(part, tuple(p.shape)) for part, p in zip(parts, like, strict=True)]


def gradients_of(flat: Tensor, bucket: GradBucket) -> dict[Tensor, Tensor]:
    """The parts of a hook's flat result, by the bucket's parameters: views, outside the tape."""
    parameters = bucket.parameters()
    with using(grad=False):
        return dict(zip(parameters, split_like(flat, parameters), strict=True))


def require_future(result: object) -> Future[Result]:
    """The result of a hook, checked to be a future."""
    if is_future(result):
        return result
    kind = type(result)
    raise OptionError(
        "DDP communication hook's callback must return a torch.futures.Future object, but got "
        f"{kind.__module__}.{kind.__qualname__}."
    )


def flat_result(result: object, bucket: GradBucket) -> Tensor:
    """The tensor in a hook's future, flat and in the type of the bucket's parameters."""
    if is_list_or_tuple(result) and len(result) == 1:
        result = result[0]
    if not isinstance(result, Tensor):
        raise OptionError(f"expected the hook result is either a Tensor or a TensorList found {type(result).__name__}")
    parameters = bucket.parameters()
    size = sum(p.numel() for p in parameters)
    if result.numel() != size:
        raise GradientError(
            f"the communication hook's future for bucket {bucket.index()} holds a tensor of shape "
            f"{list(result.shape)}; expected the {size} elements of the bucket's gradients"
        )
    return rows.reshape(result, (-1,)).to(parameters[0].dtype)
