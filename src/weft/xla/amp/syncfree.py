"""`torch_xla.amp.syncfree`: optimizers whose step a scaler, or `step(found_inf=...)`, skips without waiting."""

from __future__ import annotations

from collections.abc import Callable

from weft import optim
from weft._base.dtype import float32
from weft._base.types import Result
from weft._tensor.tensor import Tensor
from weft.errors import ValueRangeError


class _SyncFree(optim.Optimizer):
    """The part of these optimizers that PyTorch's do not have."""

    def step(self, closure: Callable[[], Result] | None = None, found_inf: Tensor | None = None) -> Result:
        """Update all parameters that have a gradient, unless `found_inf` is not 0; returns the result of `closure`.

        `found_inf` is a tensor with a single element and no dims, on any device; the program decides, and nothing
        waits for it. `ValueError` for other sizes.
        """
        if found_inf is None:
            return super().step(closure)
        if found_inf.ndim:
            raise ValueRangeError(
                f"{type(self).__name__}.step: found_inf must be a tensor without dims, got one of size "
                f"{list(found_inf.shape)}"
            )
        # A copy for each device, as a program cannot read a tensor of another one.
        devices = {param.device for group in self.param_groups for param in group["params"]}
        self._found_inf = [found_inf.to(device, float32) for device in devices]
        try:
            return super().step(closure)
        finally:
            del self._found_inf


class SGD(_SyncFree, optim.SGD):
    """`optim.SGD`, whose step takes `found_inf`."""

    _skips_steps = True


class Adam(_SyncFree, optim.Adam):
    """`optim.Adam`, whose step takes `found_inf`."""

    _skips_steps = True


class AdamW(_SyncFree, optim.AdamW):
    """`optim.AdamW`, whose step takes `found_inf`."""

    _skips_steps = True
