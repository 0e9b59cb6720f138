"""Options of a worker."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from weft._base.device import CPU, canonical
from weft._base.device import device as Device
from weft._base.guards import is_int, is_number
from weft._comm.transport.tls import Certificates
from weft.distributed.rpc import constants
from weft.errors import ArgumentError, RpcError, ValueRangeError

DeviceType = int | str | Device
_TRANSPORTS, _CHANNELS = ("shm", "uv", "ibv", "unix", "tcp"), ("cma", "basic", "mpt_uv", "xth", "shm", "tcp")


class RpcBackendOptions:
    """The options of all backends: the default timeout of calls in seconds, and where workers meet."""

    def __init__(
        self,
        rpc_timeout: float = constants.DEFAULT_RPC_TIMEOUT_SEC,
        init_method: str = constants.DEFAULT_INIT_METHOD,
    ) -> None:
        if not is_number(rpc_timeout):
            raise ArgumentError(
                f"incompatible constructor arguments: rpc_timeout must be a number of seconds, but got {rpc_timeout!r}"
            )
        if not rpc_timeout >= 0:
            raise RpcError(f"RPC Timeout must be non-negative, got {rpc_timeout}")
        _require_url(init_method)
        self.rpc_timeout = float(rpc_timeout)
        self.init_method = init_method


class TensorPipeRpcBackendOptions(RpcBackendOptions):
    """Options of the default backend.

    num_worker_threads   number of functions that this worker runs for others at the same time
    rpc_timeout          default timeout of calls in seconds; 0 for no limit
    init_method          where workers meet, as for `init_process_group`
    device_maps          by name of a callee: its device for tensors on a device of this worker; the inverse is used for
                         answers. Tensors on the CPU may be in the map; tensors on other devices must be
    devices              accelerators of this worker that take part; by default those in its and other workers' maps

    certificates         files of a certificate, its private key, and the authority of all certificates, with which TCP
                         connections use TLS; not in PyTorch

    Of `_transports`, `shm` and `unix` stand for Unix sockets with shared memory, which workers on one host use unless
    only others are named; `_channels` are checked and not used.
    """

    def __init__(
        self,
        *,
        num_worker_threads: int = constants.DEFAULT_NUM_WORKER_THREADS,
        rpc_timeout: float = constants.DEFAULT_RPC_TIMEOUT_SEC,
        init_method: str = constants.DEFAULT_INIT_METHOD,
        device_maps: Mapping[str, Mapping[DeviceType, DeviceType]] | None = None,
        devices: Sequence[DeviceType] | None = None,
        _transports: Sequence[str] | None = None,
        _channels: Sequence[str] | None = None,
        certificates: Sequence[str | os.PathLike[str]] | None = None,
    ) -> None:
        super().__init__(rpc_timeout, init_method)
        if not is_int(num_worker_threads):
            raise ArgumentError(f"num_worker_threads must be an integer, but got {num_worker_threads!r}")
        if num_worker_threads < 1:
            raise RpcError(f"num_worker_threads must be positive, got {num_worker_threads}")
        for what, names, supported in (("transport", _transports, _TRANSPORTS), ("channel", _channels, _CHANNELS)):
            for name in names or ():
                if name not in supported:
                    raise RpcError(f"Unknown {what}: {name}; there are {', '.join(supported)}")
        self.num_worker_threads = num_worker_threads
        self.unix_sockets = _transports is None or not {"shm", "unix"}.isdisjoint(_transports)
        self.certificates = None if certificates is None else _files(certificates)
        self.device_maps: dict[str, dict[Device, Device]] = {}
        self.named: list[Device] = []
        self.resolved_devices: list[Device] = []
        for to, device_map in (device_maps or {}).items():
            self._add_map(to, device_map, "device_map")
        if devices is not None:
            self.set_devices(devices)

    def set_device_map(self, to: str, device_map: Mapping[DeviceType, DeviceType]) -> None:
        """Add to the device map for calls to a worker. `ValueError` if it is then no longer one to one."""
        self._add_map(to, device_map, "set_device_map")

    def set_devices(self, devices: Sequence[DeviceType]) -> None:
        """Set the devices of this worker that take part. `ValueError` for the CPU, which always takes part."""
        self.named = [_accelerator(one) for one in devices]

    @property
    def devices(self) -> list[Device]:
        """The accelerators that take part: those set; after joining, also those in this and other workers' maps."""
        return self.named or self.resolved_devices

    def _add_map(self, to: str, added: Mapping[DeviceType, DeviceType], what: str) -> None:
        _require_map(added, to, what)
        merged = dict(self.device_maps.get(to, {}))
        sources = {target: source for source, target in merged.items()}
        for one, other in added.items():
            source, target = _device(one), _device(other)
            if merged.get(source, target) != target:
                raise ValueRangeError(
                    f"`{what}` only supports 1-to-1 mapping, trying to map {source} to {target} and {merged[source]}"
                )
            if sources.get(target, source) != source:
                raise ValueRangeError(
                    f"`{what}` only supports 1-to-1 mapping, trying to map {source} and {sources[target]} to {target}"
                )
            merged[source], sources[target] = target, source
        self.device_maps[to] = merged


def _require_url(init_method: object) -> None:
    if not isinstance(init_method, str):
        raise ArgumentError(f"init_method must be a URL such as env:// or tcp://HOST:PORT, but got {init_method!r}")


def _require_map(added: object, to: str, what: str) -> None:
    if not isinstance(added, Mapping):
        raise ArgumentError(
            f"`{what}` for {to!r} must be a dict from devices here to devices there, such as "
            f"{{'xla:0': 'xla:1'}}, but got {added!r}"
        )


def _files(certificates: Sequence[str | os.PathLike[str]]) -> Certificates:
    if isinstance(certificates, str) or len(certificates) != len(Certificates._fields):
        raise ValueRangeError(
            "certificates must be three files, a certificate, its private key and the authority, but got "
            f"{certificates!r}"
        )
    return Certificates(*[os.fspath(one) for one in certificates])


def _device(name: DeviceType) -> Device:
    return canonical(name if isinstance(name, Device) else Device(name))


def _accelerator(name: DeviceType) -> Device:
    device = _device(name)
    if device is CPU:
        raise ValueRangeError(
            f"`set_devices` expect a list of CUDA devices, but got device type {device.type}. Other accelerators may "
            "be named as well; the CPU always takes part"
        )
    return device
