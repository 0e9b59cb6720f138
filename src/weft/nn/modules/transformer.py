"""Transformers, under PyTorch's import path."""

from weft.nn._transformer import Transformer as Transformer
from weft.nn._transformer import TransformerDecoder as TransformerDecoder
from weft.nn._transformer import TransformerDecoderLayer as TransformerDecoderLayer
from weft.nn._transformer import TransformerEncoder as TransformerEncoder
from weft.nn._transformer import TransformerEncoderLayer as TransformerEncoderLayer
from weft.nn._transformer import _get_activation_fn as _get_activation_fn
