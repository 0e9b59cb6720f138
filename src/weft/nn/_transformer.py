"""The transformer of "Attention Is All You Need" (Vaswani et al., 2017)."""

from __future__ import annotations

import copy
from collections.abc import Callable

from weft._base.device import DeviceLike
from weft._base.dtype import DType, float32
from weft._base.types import Kwargs, SavedState
from weft._base.usage import log_api_usage_once
from weft._tensor.codegen import op
from weft._tensor.tensor import Tensor
from weft.errors import ShapeError
from weft.nn import functional as F
from weft.nn import init
from weft.nn._attention import MultiheadAttention
from weft.nn._containers import ModuleList
from weft.nn._dropout import Dropout
from weft.nn._linear import Linear
from weft.nn._module import Module
from weft.nn._norm import LayerNorm

_ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu}


def _get_activation_fn(activation: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    if callable(activation):
        return activation
    if activation not in _ACTIVATIONS:
        raise ShapeError(f"activation should be relu/gelu, not {activation}")
    return _ACTIVATIONS[activation]


class _TransformerLayer(Module):
    """A layer of an encoder or decoder: attention sublayers, then a feed-forward network, all with residuals.

    With `norm_first`, the input of each sublayer is normalised; otherwise, the sum of input and output.
    """

    _attentions: tuple[str, ...]  # the names of the attention sublayers

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        factory_kwargs: Kwargs = {"device": device, "dtype": dtype}
        for name in self._attentions:
            attention = MultiheadAttention(
                d_model, nhead, dropout, bias=bias, batch_first=batch_first, **factory_kwargs
            )
            self.add_module(name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **factory_kwargs)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **factory_kwargs)
        self.norm_first = norm_first
        sublayers = range(1, len(self._attentions) + 2)
        for at in sublayers:
            self.add_module(f"norm{at}", LayerNorm(d_model, layer_norm_eps, bias=bias, **factory_kwargs))
        for at in sublayers:
            self.add_module(f"dropout{at}", Dropout(dropout))
        self.activation = _get_activation_fn(activation)

    def _attend(
        self, at: int, x: Tensor, keys: Tensor | None, mask: Tensor | None, padding: Tensor | None, is_causal: bool
    ) -> Tensor:
        """The attention sublayer number `at`, with its residual; self-attention if `keys` is None."""
        attention = getattr(self, self._attentions[at - 1])

        def attend(x: Tensor) -> Tensor:
            to = x if keys is None else keys
            return attention(
                x, to, to, attn_mask=mask, key_padding_mask=padding, need_weights=False, is_causal=is_causal
            )[0]

        return self._residual(at, x, attend)

    def _residual(self, at: int, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        norm, dropout = getattr(self, f"norm{at}"), getattr(self, f"dropout{at}")
        if self.norm_first:
            return x + dropout(sublayer(norm(x)))
        return norm(x + dropout(sublayer(x)))

    def _feed_forward(self, x: Tensor) -> Tensor:
        """The feed-forward sublayer, with its residual."""
        return self._residual(
            len(self._attentions) + 1, x, lambda x: self.linear2(self.dropout(self.activation(self.linear1(x))))
        )


class TransformerEncoderLayer(_TransformerLayer):
    """Self-attention, then a feed-forward network."""

    _attentions = ("self_attn",)

    def __getstate__(self) -> SavedState:
        # PyTorch's layer needs the attribute in a file: it chooses its fast path by it.
        number = 1 if self.activation is F.relu else 2 if self.activation is F.gelu else 0
        return {**super().__getstate__(), "activation_relu_or_gelu": number}

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """The result has the shape of `src`."""
        return self._feed_forward(self._attend(1, src, None, src_mask, src_key_padding_mask, is_causal))


class TransformerDecoderLayer(_TransformerLayer):
    """Self-attention, attention to the encoder's output, then a feed-forward network."""

    _attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The result has the shape of `tgt`."""
        x = self._attend(1, tgt, None, tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        x = self._attend(2, x, memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        return self._feed_forward(x)


def _copies(layer: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(layer) for _ in range(count)])


class TransformerEncoder(Module):
    """Copies of an encoder layer, applied one after the other."""

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        log_api_usage_once(f"torch.nn.modules.{type(self).__name__}")
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = (
            enable_nested_tensor  # this and the next choose PyTorch's fast path; results are equal
        )
        self.mask_check = mask_check

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """The result has the shape of `src`."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, bool(is_causal))
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """Copies of a decoder layer, applied one after the other."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        log_api_usage_once(f"torch.nn.modules.{type(self).__name__}")
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The result has the shape of `tgt`."""
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask,
                memory_mask,
                tgt_key_padding_mask,
                memory_key_padding_mask,
                bool(tgt_is_causal),
                memory_is_causal,
            )
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = F.relu,
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        log_api_usage_once(f"torch.nn.modules.{type(self).__name__}")
        super().__init__()
        options = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        factory_kwargs: Kwargs = {"device": device, "dtype": dtype}

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, **factory_kwargs)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*options, **factory_kwargs), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*options, **factory_kwargs), num_decoder_layers, norm()
        )
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The result has the shape of `tgt`."""
        batch = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise ShapeError("the batch number of src and tgt must be equal")
        if not src.shape[-1] == tgt.shape[-1] == self.d_model:
            raise ShapeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        return self.decoder(
            tgt,
            memory,
            tgt_mask,
            memory_mask,
            tgt_key_padding_mask,
            memory_key_padding_mask,
            tgt_is_causal,
            memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: DeviceLike | None = None, dtype: DType | None = None
    ) -> Tensor:
        """-inf above the diagonal, 0 elsewhere."""
        return op.triu(op.full((sz, sz), float("-inf"), dtype=dtype or float32, device=device), 1)
