"""The elements of PyTorch's tensors. This file and those that import it need torch."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

import weft


def to_numpy(x: torch.Tensor) -> np.ndarray:
    """The elements of a tensor, bfloat16 as that of ml_dtypes."""
    x = x.detach().resolve_conj().resolve_neg().contiguous()
    return x.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if x.dtype is torch.bfloat16 else x.numpy().copy()


def weft_to_numpy(x: weft.Tensor) -> np.ndarray:
    """The elements of a tensor of Weft's, of bfloat16 too."""
    return x.view(weft.int16).numpy().view(ml_dtypes.bfloat16) if x.dtype is weft.bfloat16 else x.numpy()
