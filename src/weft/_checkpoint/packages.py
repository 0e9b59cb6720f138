"""Locations of storages: the names that files have for devices, and what puts storages there."""

from __future__ import annotations

import re
from bisect import insort
from collections.abc import Callable
from typing import Any

from weft._base.device import device
from weft._base.types import AnyCallable
from weft._tensor.composite.query import typename
from weft._tensor.convert import existing
from weft.errors import CheckpointError, DeviceError, ValueRangeError, WeftError

Tagger = Callable[[Any], str | None]
"""A storage -> the name of its location, or None for those of others."""

Deserializer = Callable[[Any, str], Any]
"""(a storage in the host's memory, the name of a location) -> the storage there, or None for those of others."""

# no cell: files are not read or written in a captured function
_package_registry: list[tuple[int, Tagger, Deserializer]] = []


def register_package(priority: int, tagger: AnyCallable, deserializer: AnyCallable) -> None:
    """Add names of locations: `tagger(storage)` gives one, `deserializer(storage, name)` puts a storage there.

    Both return None for what they do not know. Lower priorities are asked first; the CPU has 10, other devices 20. The
    argument of `deserializer` stands for the elements in a file, as that of a `map_location` function.
    """
    insort(_package_registry, (priority, tagger, deserializer), key=lambda entry: entry[0])


def location_tag(storage: Any) -> str:
    """The name of the location of a storage; `RuntimeError` if nobody knows one."""
    for _, tagger, _ in _package_registry:
        location = tagger(storage)
        if location:
            return location
    raise CheckpointError(f"don't know how to determine data location of {typename(storage)}")


def default_restore_location(storage: Any, location: str) -> Any:
    """The storage at the location of this name; `RuntimeError` if nobody knows it, or if it is not on this machine."""
    for _, _, deserializer in _package_registry:
        result = deserializer(storage, location)
        if result is not None:
            return result
    raise CheckpointError(
        f"don't know how to restore data location of torch.storage.UntypedStorage (tagged with {location})"
    )


def existing_location(target: device) -> device:
    """A device that a file names, checked to exist on this machine."""
    try:
        return existing(target)
    except DeviceError as error:
        if target.type != "cuda":
            raise DeviceError(f"{error}; map_location='cpu' loads the tensors to the CPU") from None
        raise DeviceError(
            "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are "
            "running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your "
            f"storages to the CPU. ({error})"
        ) from None


def validate_cuda_device(location: str) -> int:
    """The number of the GPU that a location names; `RuntimeError` if there is none."""
    place = device(location)
    return existing_location(device("cuda", place.index or 0)).index or 0


_NAME = re.compile(r"[a-z_]+(:[0-9]+)?")


def _own_tag(storage: Any) -> str:
    return str(storage.device)


def _own_place(storage: Any, location: str) -> Any:
    if not _NAME.fullmatch(location):
        return None
    try:
        target = device(location)
    except (WeftError, ValueRangeError):
        return None
    return storage.to(device=existing_location(target))


def _tag_of_cpu(storage: Any) -> str | None:
    return "cpu" if storage.device.type == "cpu" else None


def _place_on_cpu(storage: Any, location: str) -> Any:
    return storage.cpu() if location == "cpu" else None


register_package(10, _tag_of_cpu, _place_on_cpu)
register_package(20, _own_tag, _own_place)
