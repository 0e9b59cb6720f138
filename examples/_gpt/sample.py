"""Generates text."""

from __future__ import annotations

import weft as torch
from _gpt.text import decode, encode
from weft import nn
from weft.nn import functional as F


@torch.no_grad()
def continued(model: nn.Module, prompt: str, length: int, temperature: float = 0.7) -> str:
    """`length` characters drawn from the model after a prompt, which must have the length of the context.

    The sliding window has a fixed size, so one compiled program makes every character.
    """
    window = torch.tensor([encode(prompt)])
    found = []
    for _ in range(length):
        chances = F.softmax(model(window)[:, -1] / temperature, dim=-1)
        token = torch.multinomial(chances, 1)
        window = torch.cat([window[:, 1:], token], dim=1)
        found.append(token.item())
    return decode(found)
