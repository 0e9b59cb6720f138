"""Where tensors on devices go: as the caller's map says there, and back the other way round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from weft._base.device import CPU, canonical
from weft._base.device import device as Device
from weft._comm.transport.pipe import Pipe
from weft._tensor.convert import existing
from weft.distributed.rpc._listener import Endpoint
from weft.distributed.rpc._message import Receiver
from weft.distributed.rpc._workers import WorkerInfo
from weft.errors import DeviceError, RpcError

Map = Mapping[Device, Device]
Maps = Mapping[str, Map]
"""By name of a callee: its device for each of the caller's."""


_NOWHERE: Maps = {}


class Own(NamedTuple):
    """The devices of a worker: those it has named, which may be none, and its maps."""

    named: Sequence[Device] = ()
    maps: Maps = _NOWHERE

    def told(self) -> dict[str, Any]:
        """The same as others are told."""
        return {
            "devices": [str(one) for one in self.named],
            "device_maps": {to: _told(found) for to, found in self.maps.items()},
        }


def own_of(endpoint: Endpoint) -> Own:
    """The devices of a worker that has told of them."""
    maps = {to: _heard(found) for to, found in endpoint["device_maps"].items()}
    return Own([canonical(one) for one in endpoint["devices"]], maps)


def devices_of(me: str, workers: Mapping[str, Own]) -> list[Device]:
    """The devices of a worker that has named none: those of its maps, and those that others have maps to."""
    own = {one for found in workers[me].maps.values() for one in found}
    named = {one for other in workers.values() for one in other.maps.get(me, {}).values()}
    return sorted((own | named) - {CPU}, key=lambda one: (one.index or 0, one.type))


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
        if told := _complaint_of_map(own.named, found, workers[to].named):
            what, _, rest = told.partition("\n")
            return f"Node {me} has {what} in its device map for {to}\n{_shown(found)}\n{rest}"
    for other, theirs in workers.items():
        if missing := _missing(theirs.maps.get(me, {}).values()):
            return (
                f"Node {other} has target devices with invalid indices in its device map for {me}\n"
                f"{_shown(theirs.maps[me])}\n{missing}"
            )
    return ""


def _complaint_of_map(named: Sequence[Device], found: Map, there: Sequence[Device]) -> str:
    """What is wrong with a map from this worker's devices to those that another one has named, and why."""
    if named and not found.keys() <= {CPU, *named}:
        return f"unexpected source devices\n{_listed('devices', named)}"
    if missing := _missing(found):
        return f"source devices with invalid indices\n{missing}"
    if there and not set(found.values()) <= {CPU, *there}:
        return f"unexpected target devices\n{_listed('devices', there)}"
    return ""


def _listed(what: str, found: Iterable[Any]) -> str:
    return f"{what} = {', '.join(map(str, found))}"


def _shown(found: Map) -> str:
    return _listed("device map", [f"{one} to {other}" for one, other in found.items()])


def _missing(devices: Iterable[Device]) -> str:
    """What is said of the first device that this worker does not have."""
    for one in devices:
        try:
            existing(one)
        except DeviceError as error:
            return str(error)
    return ""


def _told(device_map: Map) -> dict[str, str]:
    return {str(one): str(other) for one, other in device_map.items()}


def _heard(texts: Mapping[str, str]) -> Map:
    return {canonical(one): canonical(other) for one, other in texts.items()}


class Devices:
    """The maps of a worker, and those of its callers, who tell of them before they call."""

    def __init__(self, me: WorkerInfo, maps: Maps) -> None:
        self._me = me
        self._maps = {to: dict(found) for to, found in maps.items()}
        self._callees: dict[WorkerInfo, Receiver] = {}
        self._callers: dict[Pipe | None, Map] = {None: _inverse(self.to(me))}
        self._unmapped: dict[WorkerInfo, Receiver] = {}  # callers without a map

    def to(self, callee: WorkerInfo) -> Map:
        """The map for a callee, which may be empty."""
        return self._maps.get(callee.name, {})

    def told_to(self, callee: WorkerInfo) -> dict[str, str]:
        """The same as that callee is told."""
        return _told(self.to(callee))

    def heard(self, pipe: Pipe, told: Mapping[str, str]) -> None:
        """A caller has told of its map for this worker."""
        self._callers[pipe] = _inverse(_heard(told))

    def forget(self, pipe: Pipe) -> None:
        """A caller is lost."""
        self._callers.pop(pipe, None)

    def of_callee(self, to: WorkerInfo) -> Receiver:
        """Who gets a call."""
        receiver = self._callees.get(to)
        if receiver is None:
            receiver = self._callees[to] = self._receiver("Request", to, self.to(to))
        return receiver

    def of_caller(self, to: WorkerInfo, pipe: Pipe | None) -> Receiver:
        """Who gets an answer, by the pipe that it called by, None for this worker itself."""
        if device_map := self._callers.get(pipe):
            return self._receiver("Response", to, device_map)
        known = self._unmapped.get(to)
        if known is None:
            known = self._unmapped[to] = self._receiver("Response", to, {})
        return known

    def _receiver(self, kind: str, to: WorkerInfo, device_map: Map) -> Receiver:
        if to == self._me and not device_map:
            return Receiver(to, lambda device: device)
        return Receiver(to, partial(_there, kind, to, device_map))


def _inverse(device_map: Map) -> Map:
    return {other: one for one, other in device_map.items()}


def _there(kind: str, to: WorkerInfo, device_map: Map, device: Device) -> Device:
    """Where a tensor on a device goes. The CPU needs no map, and may have one."""
    there = device_map.get(device, CPU if device is CPU else None)
    if there is None:
        raise RpcError(
            "TensorPipe RPC backend only supports CPU tensors by default, please move your tensors to CPU before "
            "sending them over RPC, or call `set_device_map` on `TensorPipeRpcBackendOptions` to explicitly configure "
            f"device mapping. {kind} device mapping is not available for destination {to.name}, but found tensor on "
            f"device: {device}"
        )
    return there
