"""Embeddings whose table has a sparse gradient: most rows of a table are not read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft._base.state import ambient
from weft._lazy.role import Interior, Leaf
from weft._lazy.value import Value
from weft._tensor.codegen import op
from weft._tensor.sparse.coo import coo, on_device
from weft._tensor.tensor import Tensor, operand, wrap
from weft.errors import OptionError


def has_sparse_gradient(weight: Tensor) -> bool:
    """Whether the gradient of a table can be sparse: of a leaf. What a table is computed from gets a dense one."""
    value = operand(weight)
    return ambient().grad and isinstance(value.role, Leaf) and value.aval.owner is None


def embedded(input: Tensor, weight: Tensor, padding_idx: int | None, scale_grad_by_freq: bool, sparse: bool) -> Tensor:
    """The rows of a table at indices.

    A sparse gradient of the table stores a row for each index that is not the padding. It waits for the indices if
    there is a padding.
    """
    if not (sparse and has_sparse_gradient(weight)):
        return op.embedding(input, weight, padding_idx, scale_grad_by_freq)
    if scale_grad_by_freq:
        raise OptionError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
    result = op.embedding(input, weight, padding_idx, False)
    size = tuple(weight.shape)
    indices = wrap(input.detach().reshape((-1,))._read())  # those of now, whatever is written to `input` later

    def derivative(cotangents: dict[int, Value], members: Sequence[object]) -> list[Value | None]:
        del members
        rows = wrap(cotangents[0]).reshape((-1, size[1]))
        if padding_idx is None:
            own = indices
        else:
            kept = on_device(np.nonzero(indices._host() != padding_idx)[0], indices)
            own, rows = indices.index_select(0, kept), rows.index_select(0, kept)
        return [None, coo(size, own.long()[None], rows)._read()]

    value = result._read()
    if isinstance(value.role, Interior):
        value.role = Interior(site=value.role.site, custom=derivative)
    return result
