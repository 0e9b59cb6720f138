"""What optimizers that libraries write themselves take from PyTorch's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps

from weft._base.state import using
from weft._base.types import AnyCallable, Arg, Result
from weft._tensor.tensor import Tensor


def _use_grad_for_differentiable(func: AnyCallable) -> AnyCallable:
    """The method `step`, recorded with gradients if the optimizer's default `differentiable` says so, else without."""

    @wraps(func)
    def step(self: Arg, *args: Arg, **kwargs: Arg) -> Result:
        with using(grad=bool(self.defaults["differentiable"])):
            return func(self, *args, **kwargs)

    return step


def _default_to_fused_or_foreach(
    params: Sequence[Tensor], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Whether to use fused kernels, and functions of lists: neither, since XLA fuses what stands in loops."""
    del params, differentiable, use_fused
    return False, False


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """The types of devices whose steps can be parts of programs: all."""
    del supports_xla
    return ["cpu", "cuda", "xla", "mps", "xpu"]
