"""Functions of sparse tensors. The operator table defines them; this module exports them."""

from __future__ import annotations

from weft._tensor.assemble import namespace
from weft._tensor.sparse.construct import check_sparse_tensor_invariants as check_sparse_tensor_invariants
from weft._tensor.sparse_types import CLASSES
from weft._tensor.tensor import Tensor as _Tensor

globals().update(CLASSES)
Tensor = _Tensor  # for annotations of libraries
__getattr__, __dir__ = namespace("sparse")
