"""Adam, and Adam with decoupled weight decay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from weft._tensor.tensor import Tensor
from weft.errors import ValueRangeError
from weft.ops.optimizer_adam import adam_step
from weft.optim._fused import FusedOptimizer
from weft.optim._optimizer import Group, Params
from weft.optim._options import require_options

if TYPE_CHECKING:
    from weft.optim._fused import Start


class Adam(FusedOptimizer):
    """The running mean of gradients, divided by the root of the running mean of their squares (Kingma and Ba, 2015).

    `weight_decay` is an L2 penalty in the loss, unless it is decoupled. `amsgrad` divides by the largest root so far.
    `foreach`, `fused` and `capturable` are kept only for PyTorch's state dicts: every step is one program anyway. With
    `differentiable`, steps are recorded on the tape, and parameters must not be leaves.
    """

    _row = adam_step
    _sparse_refusal = "Adam"

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and foreach and not capturable:
            raise ValueRangeError("lr as a Tensor is not supported for capturable=False and foreach=True")
        require_options(lr=lr, eps=eps)
        _require_betas(betas, bool(foreach) and not capturable)
        require_options(weight_decay=weight_decay)
        numbers = {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
        flags = {
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, {**numbers, **flags})

    def _starts(self, group: Group, param: Tensor) -> Mapping[str, Start]:
        del param
        peaks = {"max_exp_avg_sq": 0.0} if group["amsgrad"] else {}
        return {"step": 0.0, "exp_avg": 0.0, "exp_avg_sq": 0.0, **peaks}


def _require_betas(betas: tuple[float | Tensor, float | Tensor], foreach: bool) -> None:
    """Check the betas. Of all optimizers, only Adam takes tensors here."""
    kinds = [isinstance(beta, Tensor) for beta in betas]
    if any(kinds) and not all(kinds):
        raise ValueRangeError("betas must be either both floats or both Tensors")
    for at, beta in enumerate(betas):
        if kinds[at] and foreach:
            raise ValueRangeError(f"betas[{at}] as a Tensor is not supported for capturable=False and foreach=True")
        if isinstance(beta, Tensor) and beta.numel() != 1:
            raise ValueRangeError(f"Tensor betas[{at}] must be 1-element")
    require_options(betas=betas)


class AdamW(Adam):
    """`Adam` with decoupled weight decay, which shrinks the parameters themselves (Loshchilov and Hutter, 2019)."""

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )
