"""Embeddings, and reductions over bags of them."""

from __future__ import annotations

from typing import TypeVar

from weft._base.device import DeviceLike
from weft._base.dtype import DType
from weft._base.state import using
from weft._tensor.tensor import Tensor
from weft.errors import PreconditionError
from weft.nn import functional as F
from weft.nn import init
from weft.nn._linear import fresh
from weft.nn._lookup import options_repr
from weft.nn._module import Module
from weft.nn._parameter import Parameter

_E = TypeVar("_E", bound="Embedding")
_B = TypeVar("_B", bound="EmbeddingBag")


def _draw(weight: Tensor, padding_idx: int | None) -> None:
    """Draw new vectors in place; that of `padding_idx` becomes zero."""
    init.normal_(weight)
    if padding_idx is not None:
        with using(grad=False):
            weight[padding_idx] = 0


class Embedding(Module):
    """A table of vectors, looked up by number. They are drawn from the standard normal distribution.

    The vector of `padding_idx` starts at zero and gets no gradient. Vectors with a norm above `max_norm` are scaled
    down when they are looked up.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise PreconditionError("Padding_idx must be within num_embeddings")
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        if _weight is None:
            self.weight = fresh((num_embeddings, embedding_dim), device, dtype).requires_grad_(not _freeze)
            self.reset_parameters()
        elif tuple(_weight.shape) != (num_embeddings, embedding_dim):
            raise PreconditionError("Shape of weight does not match num_embeddings and embedding_dim")
        else:
            self.weight = Parameter(_weight, requires_grad=not _freeze)

    def reset_parameters(self) -> None:
        """Draw new vectors."""
        _draw(self.weight, self.padding_idx)

    def forward(self, input: Tensor) -> Tensor:
        """Numbers (...) to vectors (..., embedding_dim)."""
        return self._look_up(input, self.weight)

    def _look_up(self, input: Tensor, weight: Tensor) -> Tensor:
        """The vectors of another table, as layers derived from this one look them up."""
        return F.embedding(
            input, weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )

    def extra_repr(self) -> str:
        """The sizes, and the arguments that are not at their defaults."""
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        return text + options_repr(
            self, padding_idx=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, sparse=False
        )

    @classmethod
    def from_pretrained(
        cls: type[_E],
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> _E:
        """A table with the given vectors (numbers, embedding_dim), which are not trained if `freeze`."""
        if embeddings.ndim != 2:
            raise PreconditionError("Embeddings parameter is expected to be 2-dimensional")
        return cls(
            embeddings.shape[0],
            embeddings.shape[1],
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            _weight=embeddings,
            _freeze=freeze,
        )


class EmbeddingBag(Module):
    """Sums, means or maxima (`mode`) of vectors of a table, over bags of numbers.

    The vector of `padding_idx` starts at zero and is left out of the bags. Vectors with a norm above `max_norm` are
    scaled down when they are looked up. With `include_last_offset` the last offset is the end of the last bag.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < max(num_embeddings, 1):
            raise PreconditionError("padding_idx must be within num_embeddings")
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.padding_idx = padding_idx + num_embeddings if padding_idx is not None and padding_idx < 0 else padding_idx
        if _weight is None:
            self.weight = fresh((num_embeddings, embedding_dim), device, dtype)
            self.reset_parameters()
        elif tuple(_weight.shape) != (num_embeddings, embedding_dim):
            raise PreconditionError("Shape of weight does not match num_embeddings and embedding_dim")
        else:
            self.weight = Parameter(_weight)
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset

    def reset_parameters(self) -> None:
        """Draw new vectors."""
        _draw(self.weight, self.padding_idx)

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """Numbers (bags, length), or a vector of them and the `offsets` of the bags, to (bags, embedding_dim)."""
        return self._look_up(input, self.weight, offsets, per_sample_weights)

    def _look_up(
        self, input: Tensor, weight: Tensor, offsets: Tensor | None, per_sample_weights: Tensor | None
    ) -> Tensor:
        """The results for another table, as layers derived from this one compute them."""
        return F.embedding_bag(
            input,
            weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        """The sizes, the mode, and the arguments that are not at their defaults."""
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        text += options_repr(self, max_norm=None, norm_type=2, scale_grad_by_freq=False)
        text += f", mode={self.mode!r}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx!r}"

    @classmethod
    def from_pretrained(
        cls: type[_B],
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> _B:
        """A table with the given vectors (numbers, embedding_dim), which are not trained if `freeze`."""
        if embeddings.ndim != 2:
            raise PreconditionError("Embeddings parameter is expected to be 2-dimensional")
        result = cls(
            embeddings.shape[0],
            embeddings.shape[1],
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            embeddings,
            include_last_offset,
            padding_idx,
        )
        result.weight.requires_grad_(not freeze)
        return result
