"""PyTorch as Weft is meant to be: where the two differ by design, PyTorch is brought to do as Weft does."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch


def saving_copies() -> AbstractContextManager[Any]:
    """What is saved for a backward pass is a copy, so that in-place writes never make a backward pass fail."""
    return torch.autograd.graph.saved_tensors_hooks(lambda x: x.detach().clone(), lambda x: x)
