"""Where tensors on devices go: as the caller's map says there, and back the other way round."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from weft._base.device import device as Device
from weft.distributed.rpc._message import Receiver
from weft.distributed.rpc._workers import WorkerInfo, Workers
from weft.errors import RpcError

Maps = Mapping[str, Mapping[Device, Device]]
"""By name of a callee: its device for each of the caller's."""


def told(maps: Maps) -> dict[str, dict[str, str]]:
    """Maps as others are told."""
    return {to: {str(one): str(other) for one, other in found.items()} for to, found in maps.items()}


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
