"""Functions of tensors that PyTorch has written in Python, under its path for them. They are those of the package."""

from __future__ import annotations

from weft._base.exports import on_first_use

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "weft": (
            "atleast_1d", "atleast_2d", "atleast_3d", "align_tensors", "block_diag", "broadcast_shapes",
            "broadcast_tensors", "cartesian_prod", "cdist", "chain_matmul", "einsum", "istft", "lu", "meshgrid", "norm",
            "pca_lowrank", "split", "stft", "svd_lowrank", "tensordot", "unique", "unique_consecutive", "unravel_index",
        )
    },
)  # fmt: skip
