"""Checks of the arguments of `DistributedDataParallel`."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence

from weft._base.device import DeviceLike
from weft._tensor.kind_names import kind_and_advice
from weft.distributed._group import ProcessGroup
from weft.distributed._reducer import MEGABYTE
from weft.distributed._world import AnyGroup, require_group
from weft.distributed.device_mesh import DeviceMesh
from weft.errors import OptionError, ValueRangeError
from weft.nn import Module, UninitializedParameter
from weft.nn._parameter import Parameter

_CAP_MB = 25  # as in PyTorch
_FIRST_CAP_MB = 1  # less, so that the exchange begins early; as in PyTorch


def bucket_limits(cap_mb: float | None, caps_mb: Sequence[float] | None) -> list[int]:
    """Limits in bytes of the first bucket, the next, and so on; the last one holds for all further buckets."""
    wanted = list(caps_mb or ([_FIRST_CAP_MB, _CAP_MB] if cap_mb is None else [cap_mb]))
    for cap in wanted:
        if cap <= 0:
            raise ValueRangeError(f"bucket_cap_mb must be positive, but got {cap}")
    return [int(cap * MEGABYTE) for cap in wanted]


def require_options(
    mixed_precision: object,
    delayed: object,
    delayed_to: object,
    check_reduction: bool,
    broadcast_buffers: bool | None,
    forward_sync_buffers: bool | None,
) -> None:
    """Raise for options that are not supported, and warn of those that PyTorch has deprecated."""
    if (delayed is None) != (delayed_to is None):
        raise ValueRangeError(
            "delay_all_reduce_named_params and param_to_hook_all_reduce need to be set at the same time."
        )
    refused = {
        "mixed_precision": (
            mixed_precision,
            "cast the module before it is wrapped, or compress what is exchanged with bf16_compress_hook",
        ),
        "delay_all_reduce_named_params": (
            delayed,
            "list the names in module._ddp_params_and_buffers_to_ignore and "
            "all_reduce these gradients after the backward pass",
        ),
    }
    for name, (value, instead) in refused.items():
        if value is not None:
            raise OptionError(f"DistributedDataParallel does not support {name}; {instead}")
    if check_reduction:
        warnings.warn(
            "The `check_reduction` argument in `DistributedDataParallel` module is deprecated. Please avoid using it.",
            FutureWarning,
            stacklevel=3,
        )
    if broadcast_buffers is not None:
        warnings.warn(_about_buffers(forward_sync_buffers is not None), FutureWarning, stacklevel=3)


def group_of(process_group: AnyGroup, device_mesh: object) -> ProcessGroup:
    """The group of the replicas: as given, that of a mesh, or by default that of the job."""
    if device_mesh is None:
        return require_group(process_group)
    if process_group is not None:
        raise OptionError("Cannot specify both process_group and device_mesh arguments.")
    if not isinstance(device_mesh, DeviceMesh):
        raise OptionError(f"device_mesh must be a DeviceMesh, but got {device_mesh!r}")
    if device_mesh.ndim != 1:
        raise OptionError(f"Only 1D device mesh is supported, but got {device_mesh}.")
    return device_mesh.get_group()


def _about_buffers(both: bool) -> str:
    if both:
        return (
            "Both `broadcast_buffers` and `forward_sync_buffers` were specified. `broadcast_buffers` is deprecated and "
            "its value is ignored when `forward_sync_buffers` is provided."
        )
    return (
        "`broadcast_buffers` is deprecated. Use `forward_sync_buffers` instead. Unlike `broadcast_buffers=False`, "
        "`forward_sync_buffers=False` still makes buffers equal at the start."
    )


def require_module(
    module: object, ignored: Collection[str], device_ids: Sequence[DeviceLike] | None, output_device: DeviceLike | None
) -> list[tuple[str, Parameter]]:
    """The names and parameters that replicas of a module train; raises if it can have no replicas."""
    if not isinstance(module, Module):
        raise OptionError(f"DistributedDataParallel wraps a module, or a compiled one, not {kind_and_advice(module)}")
    named = [(name, parameter) for name, parameter in module.named_parameters() if name not in ignored]
    trained = [(name, parameter) for name, parameter in named if parameter.requires_grad]
    if not trained:
        raise OptionError(
            "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient."
        )
    if any(isinstance(parameter, UninitializedParameter) for _, parameter in named):
        raise OptionError(
            "Modules with uninitialized parameters can't be used with `DistributedDataParallel`. Run a dummy forward "
            "pass to correctly initialize the modules"
        )
    if device_ids is not None and len(device_ids) > 1:
        raise ValueRangeError("device_ids can only be None or contain a single element.")
    devices = {parameter.device for _, parameter in named}
    if len(kinds := {device.type for device in devices}) > 1:
        raise ValueRangeError(
            "DistributedDataParallel's input module must be on the same type of devices, but input module parameters "
            f"locate in {sorted(kinds)}."
        )
    if (device_ids or output_device) and (len(devices) > 1 or next(iter(devices)).type == "cpu"):
        raise ValueRangeError(
            "DistributedDataParallel device_ids and output_device arguments only work with single-device/multiple-"
            f"device GPU modules or CPU modules, but got device_ids {device_ids}, output_device {output_device}, and "
            f"module parameters {devices}."
        )
    return trained
