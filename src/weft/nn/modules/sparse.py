"""Embeddings, under PyTorch's import path."""

from weft.nn._embedding import Embedding as Embedding
from weft.nn._embedding import EmbeddingBag as EmbeddingBag
