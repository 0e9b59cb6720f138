"""What optimizers that libraries write themselves take from PyTorch's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from typing import Any

from weft._base.device import device as Device
from weft._base.dtype import DType
from weft._base.state import using
from weft._base.types import AnyCallable, Arg, Result
from weft._tensor.tensor import Tensor


def use_grad_for_differentiable(func: AnyCallable) -> AnyCallable:
    """The method `step`, recorded with gradients if the optimizer's default `differentiable` says so, else without."""

    @wraps(func)
    def step(self: Arg, *args: Arg, **kwargs: Arg) -> Result:
        with using(grad=bool(self.defaults["differentiable"])):
            return func(self, *args, **kwargs)

    return step


def default_to_fused_or_foreach(
    params: Sequence[Tensor], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Whether to use fused kernels, and functions of lists: neither, since XLA fuses what stands in loops."""
    del params, differentiable, use_fused
    return False, False


def capturable_devices(supports_xla: bool = True) -> list[str]:
    """The types of devices whose steps can be parts of programs: all."""
    del supports_xla
    return ["cpu", "cuda", "xla", "mps", "xpu"]


# --- functions of lists, which libraries call with tensors of one device and one type --------------------------------

FOREACH_TYPES: list[type[Tensor]] = [Tensor]
"""The types of tensors that functions of lists take; libraries add theirs, such as `Parameter`."""


def has_foreach(device: Device) -> bool:
    """Whether functions of lists compute on a device: on all that compute."""
    return device.type in capturable_devices()


def have_foreach(tensors: Sequence[Tensor | None], device: Device) -> bool:
    """Whether functions of lists take these tensors of a device."""
    return has_foreach(device) and all(x is None or type(x) in FOREACH_TYPES for x in tensors)


def grouped_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Any]], with_indices: bool = False
) -> dict[tuple[Device, DType], tuple[list[list[Any]], list[int]]]:
    """Lists of tensors, by the device and the type of the first list's."""
    groups: dict[tuple[Device, DType], tuple[list[list[Any]], list[int]]] = {}
    for at, first in enumerate(tensorlistlist[0]):
        lists, indices = groups.setdefault((first.device, first.dtype), ([[] for _ in tensorlistlist], []))
        for chosen, tensors in zip(lists, tensorlistlist, strict=True):
            if tensors:
                chosen.append(tensors[at])
        if with_indices:
            indices.append(at)
    return groups
