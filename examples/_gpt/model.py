"""A small GPT. Only the first import is specific to Weft."""

from __future__ import annotations

import weft as torch
from weft import nn
from weft.nn import functional as F


def turned(x: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding of queries or keys `[..., time, size]` (https://arxiv.org/abs/2104.09864)."""
    time, size = x.shape[-2:]
    frequencies = 10_000.0 ** -(torch.arange(size // 2) / (size // 2))
    angles = torch.outer(torch.arange(time).float(), frequencies)
    cos, sin = angles.cos(), angles.sin()
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class Attention(nn.Module):
    """Causal self-attention with several heads; `[batch, time, width]` in and out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, width = x.shape
        split = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads)
        qkv = split.permute(2, 0, 3, 1, 4)
        q, k = turned(qkv[:2]).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, qkv[2], is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, time, width))


class Block(nn.Module):
    """Attention, then a multilayer perceptron; each has a residual connection, and normalises its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):
    """Maps tokens `[batch, time]` to logits `[batch, time, vocabulary]` of the token that follows each."""

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.apply(_start)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def _start(module: nn.Module) -> None:
    """Small random weights (GPT-2's), so that training starts from nearly uniform predictions."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
