"""Adam for gradients with few rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from weft._tensor.sparse.encoding import is_sparse
from weft.errors import OptionError, ValueRangeError
from weft.ops.optimizer_adam import sparse_adam_step
from weft.optim._fused import FusedOptimizer
from weft.optim._optimizer import Params
from weft.optim._options import require, require_options

if TYPE_CHECKING:
    from weft._tensor.tensor import Tensor


class SparseAdam(FusedOptimizer):
    """`Adam` for sparse gradients: of a parameter and its state, only the rows change that a gradient stores."""

    _row = sparse_adam_step
    _fresh: ClassVar = {"step": 0.0, "exp_avg": 0.0, "exp_avg_sq": 0.0}

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        require("learning rate", lr, _ABOVE_ZERO)
        require("epsilon value", eps, _ABOVE_ZERO)
        require_options(betas=betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        complex_ones, sparse_ones = self._places(lambda p: p.dtype.is_complex), self._places(is_sparse)
        if sparse_ones:
            raise ValueRangeError(
                f"Sparse params at indices {sparse_ones}: SparseAdam requires dense parameter tensors"
            )
        if complex_ones:
            raise ValueRangeError(
                f"Complex params at indices {complex_ones}: SparseAdam does not support complex parameters"
            )

    def _places(self, test: Callable[[Tensor], bool]) -> list[list[int]]:
        """The numbers of group and parameter where a test is true."""
        groups = enumerate(self.param_groups)
        return [[i, j] for i, group in groups for j, p in enumerate(group["params"]) if test(p)]

    def _kind(self, param: Tensor) -> None:
        if param.grad is not None and not is_sparse(param.grad):
            raise OptionError("SparseAdam does not support dense gradients, please consider Adam instead")


_ABOVE_ZERO = 5e-324
