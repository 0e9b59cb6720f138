"""Tensors between devices and the host, and files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from weft import serialization
from weft._base.device import DeviceLike
from weft._base.device import device as device_class
from weft._base.guards import is_a, is_mapping
from weft._base.types import FileLike, PyTree
from weft._tensor.convert import existing
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ValueRangeError
from weft.nn._parameter import Parameter
from weft.xla._arena import ToXlaTensorArena
from weft.xla._memory import unlazy
from weft.xla._ordinals import is_master_ordinal
from weft.xla._sharding import ShardingSpec

if TYPE_CHECKING:
    from weft.xla._nested import Select


def save(data: PyTree, file_or_path: FileLike, master_only: bool = True, global_master: bool = False) -> None:
    """Write a nested structure with its XLA tensors as CPU tensors, as `weft.save` does.

    The first replica of each host writes or, with `global_master`, only the first one of the job. All replicas must
    call this. With `master_only=False` every replica writes, and needs its own destination. Tensors that share elements
    on the device do not share them in the file.
    """
    writes = not master_only or is_master_ordinal(local=not global_master)
    on_host = _maybe_convert_to_cpu(data, convert=writes)
    if writes:
        serialization.save(on_host, file_or_path)


def load(file_or_path: FileLike) -> PyTree:
    """Read what `save` has written; its tensors are on the CPU."""
    return serialization.load(file_or_path, map_location="cpu")


def _maybe_convert_to_cpu(data: PyTree, convert: bool = True) -> PyTree:
    """A copy of a nested structure with CPU tensors for XLA tensors if `convert`; they are computed in any case."""

    def on_host(tensors: list[Tensor]) -> list[Tensor]:
        unlazy(tensors)
        return [_moved(tensor, device_class("cpu")) for tensor in tensors] if convert else tensors

    return ToXlaTensorArena(on_host, _is_on("xla")).transform(data)


InputSharding = ShardingSpec | Mapping[str, ShardingSpec] | None


def send_cpu_data_to_device(datas: PyTree, device: DeviceLike, input_sharding: InputSharding = None) -> PyTree:
    """A copy of a nested structure with the CPU tensors on a device. A single tensor gives a list with one tensor.

    `input_sharding` says how tensors of its number of dims are split over a mesh. For a dict it may be a dict with a
    `ShardingSpec` for each key.
    """
    return sent([datas] if isinstance(datas, Tensor) else datas, device, input_sharding)


def sent(data: PyTree, device: DeviceLike, input_sharding: InputSharding = None) -> PyTree:
    """`send_cpu_data_to_device` that returns a single tensor for a single tensor."""
    if isinstance(input_sharding, Mapping):
        if not is_mapping(data) or data.keys() != input_sharding.keys():
            keys = [*data] if is_mapping(data) else type(data).__name__
            raise ValueRangeError(
                f"input_sharding has the keys {[*input_sharding]}, so a batch must be a dict with these, got {keys}"
            )
        return {key: sent(data[key], device, sharding) for key, sharding in input_sharding.items()}
    if input_sharding is not None and not is_a(input_sharding, ShardingSpec):
        raise ArgumentError(
            f"input_sharding must be a ShardingSpec, or a dict of them by the keys of a batch, got {input_sharding!r}"
        )
    target = existing(device)

    def on_device(tensors: list[Tensor]) -> list[Tensor]:
        moved = [_moved(tensor, target) for tensor in tensors]
        # Other tensors of a batch, such as labels, have other numbers of dims and stay whole.
        if input_sharding is not None:
            for tensor in filter(input_sharding.can_apply, moved):
                input_sharding.apply(tensor)
        return moved

    return ToXlaTensorArena(on_device, _is_on("cpu")).transform(data)


def _is_on(kind: str) -> Select:
    return lambda value: isinstance(value, Tensor) and value.device.type == kind


def _moved(tensor: Tensor, target: device_class) -> Tensor:
    """A leaf with the elements on another device, which requires a gradient if the tensor does."""
    result = tensor.detach().to(target)
    if isinstance(tensor, Parameter):
        return Parameter(result, tensor.requires_grad)
    return result.requires_grad_(tensor.requires_grad)
