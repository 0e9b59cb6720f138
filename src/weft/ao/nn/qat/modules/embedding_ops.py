"""Tables of vectors with fake-quantized weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from weft._base.types import Arg, Kwargs
from weft._tensor.tensor import Tensor
from weft.ao.nn.qat._module import FakeQuantized, require_qconfig
from weft.errors import PreconditionError
from weft.nn._embedding import Embedding as FloatEmbedding
from weft.nn._embedding import EmbeddingBag as FloatEmbeddingBag

if TYPE_CHECKING:
    from weft.ao._observing.qconfig import QConfigAny
    from weft.nn._module import Module


def _require_float_zero_points(qconfig: QConfigAny) -> None:
    scheme = qconfig.weight().qscheme if qconfig else None
    if qconfig and "float_qparams" not in repr(scheme):
        raise PreconditionError(
            f"Embedding weights require a qscheme of torch.per_channel_affine_float_qparams, but got {scheme}; use "
            "default_embedding_qat_qconfig"
        )


_OPTIONS = (
    "num_embeddings", "embedding_dim", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse",
)  # fmt: skip


class _Table(FakeQuantized):
    """What tables have in common. `_OPTIONS` has the attributes that are arguments of both constructors."""

    _FLOAT_MODULE: ClassVar[type]
    _OPTIONS: ClassVar[tuple[str, ...]]

    def __init__(
        self, num_embeddings: int, embedding_dim: int, *args: Arg, qconfig: QConfigAny = None, **kwargs: Arg
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, *args, **kwargs)
        _require_float_zero_points(qconfig)
        self._set_fake_quant(qconfig)

    @classmethod
    def _options(cls, table: Module) -> Kwargs:
        return {name: getattr(table, name) for name in cls._OPTIONS}

    @classmethod
    def from_float(cls, mod: Module, use_precomputed_fake_quant: bool = False) -> Module:
        """The table with the vectors of a float one that has a `qconfig`."""
        del use_precomputed_fake_quant
        qconfig = require_qconfig(mod, (cls._FLOAT_MODULE,), cls)
        result = cls(**cls._options(mod), _weight=mod.weight, qconfig=qconfig)
        result.weight = mod.weight
        return result

    def to_float(self) -> Module:
        """A float table with the same vectors."""
        result = self._FLOAT_MODULE(**self._options(self), _weight=self.weight.detach())
        return result.train(self.training)


class Embedding(_Table, FloatEmbedding):
    """A table whose vectors are rounded as they will be when it is quantized."""

    _FLOAT_MODULE: ClassVar[type] = FloatEmbedding
    _OPTIONS = _OPTIONS

    def forward(self, input: Tensor) -> Tensor:
        """Numbers (...) to vectors (..., embedding_dim)."""
        return self._look_up(input, self.weight_fake_quant(self.weight))


class EmbeddingBag(_Table, FloatEmbeddingBag):
    """A table for bags, whose vectors are rounded as they will be when it is quantized."""

    _FLOAT_MODULE: ClassVar[type] = FloatEmbeddingBag
    _OPTIONS = (*_OPTIONS, "mode", "include_last_offset")

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """As for `nn.EmbeddingBag`."""
        return self._look_up(input, self.weight_fake_quant(self.weight), offsets, per_sample_weights)
