"""Quantized tables of vectors. Each vector has a grid of its own, with a zero point of floats; results are floats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from weft._base.dtype import DType, float32, int64, quint8
from weft._base.types import AttributeValue
from weft._tensor.codegen import op
from weft._tensor.composite.create import zeros
from weft._tensor.composite.quantized import quantize_per_channel
from weft._tensor.quantized.encoding import quantized_encoding
from weft._tensor.tensor import Tensor
from weft.ao._observing.qconfig import float_qparams_weight_only_qconfig
from weft.ao.nn.qat.modules.embedding_ops import Embedding as QatEmbedding
from weft.ao.nn.qat.modules.embedding_ops import EmbeddingBag as QatEmbeddingBag
from weft.ao.nn.quantized._arithmetic import quantized_weight, weight_observer
from weft.ao.nn.quantized._module import HidesState, QuantizedModule, require_type
from weft.errors import PreconditionError, UnsupportedError
from weft.nn import Embedding as FloatEmbedding
from weft.nn import EmbeddingBag as FloatEmbeddingBag
from weft.nn import functional as F
from weft.nn._lookup import AnyModule

if TYPE_CHECKING:
    from weft.nn._module import Module


class EmbeddingPackedParams(QuantizedModule):
    """The weight of a table."""

    _version = 1

    def __init__(self, num_embeddings: int, embedding_dim: int, dtype: DType = quint8) -> None:
        super().__init__()
        if dtype is not quint8:
            raise UnsupportedError(f"Unsupported dtype on quantized embedding: {dtype}. Supports quint8.")
        self.dtype = dtype
        zero_points = zeros(num_embeddings, dtype=float32)
        rows = zeros(num_embeddings, embedding_dim, dtype=float32)
        self.set_weight(quantize_per_channel(rows, zero_points + 1, zero_points, 0, quint8))

    def set_weight(self, weight: Tensor) -> None:
        """Set the weight, a quantized tensor of (numbers, embedding_dim)."""
        self._packed_weight = weight

    def _weight(self) -> Tensor:
        return self._packed_weight

    weight = _weight

    def forward(self, x: Tensor) -> Tensor:
        """The input: this module only keeps the weight."""
        return x

    def _entries(self) -> dict[str, AttributeValue]:
        return {"dtype": self.dtype, "_packed_weight": self._packed_weight}

    def _take(self, entries: Mapping[str, AttributeValue]) -> None:
        self.dtype = entries["dtype"]
        self.set_weight(entries["_packed_weight"])

    def __repr__(self) -> str:
        return repr(self._packed_weight)


class Embedding(HidesState, QuantizedModule):
    """A table of vectors of 8 bits, looked up by number; results are floats."""

    _version = 1
    _FLOAT_MODULE: ClassVar[Any] = FloatEmbedding
    _QAT_MODULE: ClassVar[Any] = QatEmbedding
    _NAME: ClassVar[str] = "QuantizedEmbedding"

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
        dtype: DType = quint8,
    ) -> None:
        super().__init__()
        del padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse  # they matter in training only
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.dtype = dtype
        self._packed_params = EmbeddingPackedParams(num_embeddings, embedding_dim, dtype)
        if _weight is not None:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise PreconditionError("Shape of weight does not match num_embeddings and embedding_dim")
            self.set_weight(_weight)

    def _entries(self) -> dict[str, AttributeValue]:
        return {}

    def _take(self, entries: Mapping[str, AttributeValue]) -> None:
        del entries

    def _get_name(self) -> str:
        return self._NAME

    def extra_repr(self) -> str:
        """Sizes, type and scheme."""
        return (
            f"num_embeddings={self.num_embeddings}, embedding_dim={self.embedding_dim}, dtype={self.dtype}, "
            f"qscheme={self.weight().qscheme()}"
        )

    def set_weight(self, w: Tensor) -> None:
        """Set the table, a quantized tensor."""
        self._packed_params.set_weight(w)

    def weight(self) -> Tensor:
        """The table, (num_embeddings, embedding_dim)."""
        return self._packed_params.weight()

    def _vectors(self, indices: Tensor) -> Tensor:
        """The float vectors of numbers (...): (..., embedding_dim)."""
        encoding = quantized_encoding(self.weight(), "embedding")
        integers = F.embedding(indices, encoding.values)
        scale, zero_point = (op.unsqueeze(x[indices], -1).to(float32) for x in (encoding.scale, encoding.zero_point))
        return (integers.to(float32) - zero_point) * scale

    def forward(self, indices: Tensor) -> Tensor:
        """Numbers (...) to float vectors (..., embedding_dim)."""
        return self._vectors(indices)

    @classmethod
    def from_float(cls, mod: AnyModule, use_precomputed_fake_quant: bool = False) -> AnyModule:
        """The quantized encoding of a table whose `qconfig` has an observer for each row, of float zero points."""
        del use_precomputed_fake_quant
        if hasattr(mod, "weight_fake_quant"):
            require_type(mod, cls._QAT_MODULE, cls)
            observer = mod.weight_fake_quant
        else:
            require_type(mod, cls._FLOAT_MODULE, cls)
            observer = weight_observer(mod, float_qparams_weight_only_qconfig)()
        if "float_qparams" not in repr(observer.qscheme):
            raise PreconditionError(
                f"{cls.__name__} quantization is only supported with float_qparams_weight_only_qconfig, but the "
                f"weight's observer has {observer.qscheme}; set qconfig to it, or to None"
            )
        observer(mod.weight)
        result = cls._like(mod)
        result.set_weight(quantized_weight(mod.weight, observer))
        return result

    @classmethod
    def _like(cls, mod: Module) -> Module:
        return cls(mod.num_embeddings, mod.embedding_dim)


class EmbeddingBag(Embedding):
    """Sums, means or maxima of vectors of 8 bits over bags of numbers, as `mode` says; results are floats."""

    _FLOAT_MODULE = FloatEmbeddingBag
    _QAT_MODULE = QatEmbeddingBag
    _NAME = "QuantizedEmbeddingBag"

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "sum",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        dtype: DType = quint8,
    ) -> None:
        del max_norm, norm_type, scale_grad_by_freq, sparse
        super().__init__(num_embeddings, embedding_dim, _weight=_weight, dtype=dtype)
        self.mode = mode
        self.pruned_weights = False
        self.include_last_offset = include_last_offset

    def forward(
        self,
        indices: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
        compressed_indices_mapping: Tensor | None = None,
    ) -> Tensor:
        """Numbers, with the start of each bag in `offsets` or a bag in each row, to vectors (bags, embedding_dim)."""
        if compressed_indices_mapping is not None:
            raise UnsupportedError("EmbeddingBag: pruned tables (compressed_indices_mapping) are not supported")
        vectors = op.reshape(self._vectors(indices), (-1, self.embedding_dim))
        places = op.reshape(op.arange((indices.numel(),), 0, 1, dtype=int64, device=indices.device), indices.shape)
        return F.embedding_bag(
            places,
            vectors,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
        )

    @classmethod
    def _like(cls, mod: Module) -> Module:
        return cls(mod.num_embeddings, mod.embedding_dim, mode=mod.mode, include_last_offset=mod.include_last_offset)
