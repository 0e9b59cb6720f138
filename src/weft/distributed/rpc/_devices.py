"""Where tensors on devices go: as the caller's map says there, and back the other way round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from weft._base.device import device as Device
from weft._tensor.convert import existing
from weft.distributed.rpc._message import Receiver
from weft.distributed.rpc._place import Record
from weft.distributed.rpc._workers import WorkerInfo, Workers
from weft.errors import DeviceError, RpcError

Maps = Mapping[str, Mapping[Device, Device]]
"""By name of a callee: its device for each of the caller's."""


class Own(NamedTuple):
    """The devices of a worker: those it has named, which may be none, and its maps."""

    named: Sequence[Device]
    maps: Maps

    def told(self) -> dict[str, Any]:
        """The same as others are told."""
        maps = {to: {str(one): str(other) for one, other in found.items()} for to, found in self.maps.items()}
        return {"devices": [str(one) for one in self.named], "device_maps": maps}


def own_of(record: Record) -> Own:
    """The devices of a worker that has told of them."""
    maps = {
        to: {Device(one): Device(other) for one, other in found.items()} for to, found in record["device_maps"].items()
    }
    return Own([Device(one) for one in record["devices"]], maps)


def complaint(me: str, workers: Mapping[str, Own]) -> str:
    """What is wrong with this worker's devices and maps, or with those of others about it; empty where all is well."""
    own = workers[me]
    if len(set(own.named)) != len(own.named):
        return f"Node {me} has duplicated devices\n{_listed('devices', own.named)}"
    if missing := _missing(own.named):
        return f"Node {me} has devices with invalid indices\n{_listed('devices', own.named)}\n{missing}"
    if not own.maps.keys() <= workers.keys():
        return (
            f"Node {me} has invalid target node names in its device maps\n{_listed('device maps', own.maps)}\n"
            f"{_listed('node names', workers)}"
        )
    for to, found in own.maps.items():
        told = f"in its device map for {to}\n{_listed('device map', [f'{one} to {found[one]}' for one in found])}"
        if own.named and not found.keys() <= set(own.named):
            return f"Node {me} has unexpected source devices {told}\n{_listed('devices', own.named)}"
        if missing := _missing(found):
            return f"Node {me} has source devices with invalid indices {told}\n{missing}"
        there = workers[to].named
        if there and not set(found.values()) <= set(there):
            return f"Node {me} has unexpected target devices {told}\n{_listed(f'devices of {to}', there)}"
    for other, theirs in workers.items():
        if missing := _missing(theirs.maps.get(me, {}).values()):
            return f"Node {other} has target devices with invalid indices in its device map for {me}\n{missing}"
    return ""


def _listed(what: str, found: Iterable[Any]) -> str:
    return f"{what}: {', '.join(map(str, found))}"


def _missing(devices: Iterable[Device]) -> str:
    """What is said of the first device that this worker does not have."""
    for one in devices:
        try:
            existing(one)
        except DeviceError as error:
            return str(error)
    return ""


class Devices:
    """The maps of a worker, and those of others."""

    def __init__(self, workers: Workers, maps: Maps) -> None:
        self._workers = workers
        self._maps = maps
        self._callees: dict[WorkerInfo, Receiver] = {}
        self._callers: dict[WorkerInfo, Receiver] = {}

    def of_callee(self, to: WorkerInfo) -> Receiver:
        """Who gets a call."""
        return self._callees.get(to) or self._callees.setdefault(to, Receiver(to, partial(self._there, to)))

    def of_caller(self, to: WorkerInfo) -> Receiver:
        """Who gets an answer."""
        return self._callers.get(to) or self._callers.setdefault(to, Receiver(to, partial(self._back, to)))

    def _there(self, to: WorkerInfo, device: Device) -> Device:
        if to == self._workers.me:
            return device
        found = self._maps.get(to.name, {}).get(device)
        if found is None:
            raise RpcError(
                f"a tensor on {device} cannot be sent to {to}: no device there is named for it; use "
                f"options.set_device_map({to.name!r}, {{{str(device)!r}: …}}), or send it from the CPU"
            )
        return found

    def _back(self, to: WorkerInfo, device: Device) -> Device:
        if to == self._workers.me:
            return device
        place = self._workers.place(to) or {}
        maps = place.get("device_maps", {}).get(self._workers.me.name, {})
        for theirs, ours in maps.items():
            if Device(ours) == device:
                return Device(theirs)
        raise RpcError(
            f"an answer with a tensor on {device} cannot be sent to {to}: its device map for {self._workers.me.name} "
            "does not name that device; add it there, or return the tensor on the CPU"
        )
