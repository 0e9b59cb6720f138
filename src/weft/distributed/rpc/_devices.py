"""Device maps: the caller's map gives the devices of arguments on the callee, its inverse those of results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from weft._base.device import CPU, canonical
from weft._base.device import device as Device
from weft._base.types import Result
from weft._comm.transport.pipe import CallPipe
from weft._tensor.convert import existing
from weft.distributed.rpc._listener import Endpoint
from weft.distributed.rpc._message import Receiver, same_device
from weft.distributed.rpc._workers import WorkerInfo
from weft.errors import DeviceError, RpcError

Map = Mapping[Device, Device]
Maps = Mapping[str, Map]
"""By name of the callee: the callee's device for each of the caller's."""


_NOWHERE: Maps = {}


class WorkerDevices(NamedTuple):
    """The devices of a worker: those named in its options, which may be none, and its device maps."""

    named: Sequence[Device] = ()
    maps: Maps = _NOWHERE

    def as_text(self) -> dict[str, Result]:
        """As texts, for the worker's endpoint."""
        return {
            "devices": [str(one) for one in self.named],
            "device_maps": {to: _map_as_text(device_map) for to, device_map in self.maps.items()},
        }


def devices_from_endpoint(endpoint: Endpoint) -> WorkerDevices:
    """The devices of a worker, from its endpoint."""
    maps = {to: _map_from_text(device_map) for to, device_map in endpoint["device_maps"].items()}
    return WorkerDevices([canonical(one) for one in endpoint["devices"]], maps)


def devices_of(me: str, workers: Mapping[str, WorkerDevices]) -> list[Device]:
    """The devices of a worker that has named none: those in its own maps, and in other workers' maps to it."""
    own = {one for device_map in workers[me].maps.values() for one in device_map}
    named = {one for other in workers.values() for one in other.maps.get(me, {}).values()}
    return sorted((own | named) - {CPU}, key=lambda one: (one.index or 0, one.type))


def device_error(me: str, workers: Mapping[str, WorkerDevices]) -> str:
    """The error in this worker's devices and maps, or in other workers' maps to it; empty if there is none."""
    own = workers[me]
    if len(set(own.named)) != len(own.named):
        return f"Node {me} has duplicated devices\n{_format_list('devices', own.named)}"
    if missing := _missing(own.named):
        return f"Node {me} has devices with invalid indices\n{_format_list('devices', own.named)}\n{missing}"
    if not own.maps.keys() <= workers.keys():
        return (
            f"Node {me} has invalid target node names in its device maps\n{_format_list('device maps', own.maps)}\n"
            f"{_format_list('node names', workers)}"
        )
    for to, device_map in own.maps.items():
        if problem := _map_error(own.named, device_map, workers[to].named):
            what, _, rest = problem.partition("\n")
            return f"Node {me} has {what} in its device map for {to}\n{_format_map(device_map)}\n{rest}"
    for other, theirs in workers.items():
        if missing := _missing(theirs.maps.get(me, {}).values()):
            return (
                f"Node {other} has target devices with invalid indices in its device map for {me}\n"
                f"{_format_map(theirs.maps[me])}\n{missing}"
            )
    return ""


def _map_error(named: Sequence[Device], device_map: Map, there: Sequence[Device]) -> str:
    """The error in a map from this worker's devices to those that another worker has named; empty if there is none."""
    if named and not device_map.keys() <= {CPU, *named}:
        return f"unexpected source devices\n{_format_list('devices', named)}"
    if missing := _missing(device_map):
        return f"source devices with invalid indices\n{missing}"
    if there and not set(device_map.values()) <= {CPU, *there}:
        return f"unexpected target devices\n{_format_list('devices', there)}"
    return ""


def _format_list(title: str, items: Iterable[object]) -> str:
    return f"{title} = {', '.join(map(str, items))}"


def _format_map(device_map: Map) -> str:
    return _format_list("device map", [f"{one} to {other}" for one, other in device_map.items()])


def _missing(devices: Iterable[Device]) -> str:
    """The error for the first device that this worker does not have; empty if it has all."""
    for one in devices:
        try:
            existing(one)
        except DeviceError as error:
            return str(error)
    return ""


def _map_as_text(device_map: Map) -> dict[str, str]:
    return {str(one): str(other) for one, other in device_map.items()}


def _map_from_text(texts: Mapping[str, str]) -> Map:
    return {canonical(one): canonical(other) for one, other in texts.items()}


class DeviceMaps:
    """The maps of a worker, and those of its callers, which callers send before their first call."""

    def __init__(self, me: WorkerInfo, maps: Maps) -> None:
        self._me = me
        self._maps = {to: dict(device_map) for to, device_map in maps.items()}
        self._callees: dict[WorkerInfo, Receiver] = {}
        self._callers: dict[CallPipe | None, Map] = {None: _inverse(self.to(me))}
        self._unmapped: dict[WorkerInfo, Receiver] = {}  # callers without a map

    def to(self, callee: WorkerInfo) -> Map:
        """The map for a callee, which may be empty."""
        return self._maps.get(callee.name, {})

    def map_as_text(self, callee: WorkerInfo) -> dict[str, str]:
        """The map for a callee, as texts."""
        return _map_as_text(self.to(callee))

    def set_caller_map(self, pipe: CallPipe, text: Mapping[str, str]) -> None:
        """Store a caller's map for this worker."""
        self._callers[pipe] = _inverse(_map_from_text(text))

    def forget(self, pipe: CallPipe) -> None:
        """Forget the map of a caller that is lost."""
        self._callers.pop(pipe, None)

    def receiver_of_call(self, to: WorkerInfo) -> Receiver:
        """The receiver of a call."""
        receiver = self._callees.get(to)
        if receiver is None:
            receiver = self._callees[to] = self._receiver("Request", to, self.to(to))
        return receiver

    def receiver_of_answer(self, to: WorkerInfo, pipe: CallPipe | None) -> Receiver:
        """The receiver of an answer, given the pipe of its call; None for this worker itself."""
        if device_map := self._callers.get(pipe):
            return self._receiver("Response", to, device_map)
        unmapped = self._unmapped.get(to)
        if unmapped is None:
            unmapped = self._unmapped[to] = self._receiver("Response", to, {})
        return unmapped

    def _receiver(self, kind: str, to: WorkerInfo, device_map: Map) -> Receiver:
        if to == self._me and not device_map:
            return Receiver(to, same_device)
        return Receiver(to, partial(_target_device, kind, to, device_map))


def _inverse(device_map: Map) -> Map:
    return {other: one for one, other in device_map.items()}


def _target_device(kind: str, to: WorkerInfo, device_map: Map, device: Device) -> Device:
    """The receiver's device for a tensor. The CPU may be missing in the map; it then stays the CPU."""
    there = device_map.get(device, CPU if device is CPU else None)
    if there is None:
        raise RpcError(
            "TensorPipe RPC backend only supports CPU tensors by default, please move your tensors to CPU before "
            "sending them over RPC, or call `set_device_map` on `TensorPipeRpcBackendOptions` to explicitly configure "
            f"device mapping. {kind} device mapping is not available for destination {to.name}, but found tensor on "
            f"device: {device}"
        )
    return there
