"""Names of devices on other workers."""

from __future__ import annotations

from weft._base.device import device as Device
from weft.errors import ArgumentError, DeviceError, ValueRangeError

_RANK = "rank:"


class _remote_device:
    """A device of a worker: `WORKER/DEVICE`, `rank:NUMBER/DEVICE`, or `DEVICE` for one of this worker.

    The device of another worker defaults to its CPU. `ValueError` for other texts, `RuntimeError` for unknown devices.
    """

    def __init__(self, remote_device: object) -> None:
        self._worker_name: str | None = None
        self._rank: int | None = None
        if isinstance(remote_device, Device):
            self._device = remote_device
        elif not isinstance(remote_device, str):
            raise ArgumentError(f"Invalid type for remote_device: {type(remote_device)}")
        elif (local := _device(remote_device)) is not None:
            self._device = local
        else:
            self._parse(remote_device)

    def _parse(self, text: str) -> None:
        worker, slash, device = text.partition("/")
        number = worker.removeprefix(_RANK)
        if not worker or "/" in device or (number != worker and not number.isdecimal()):
            raise ValueRangeError(
                f"Could not parse remote_device: {text}. The valid format is '<workername>/<device>' or "
                "'rank:<rank>/<device>' or '<device>'"
            )
        if number != worker:
            self._rank = int(number)
        else:
            self._worker_name = worker
        self._device = Device(device if slash else "cpu")

    def worker_name(self) -> str | None:
        """The worker's name; None if its number or nothing was given."""
        return self._worker_name

    def rank(self) -> int | None:
        """The worker's number; None if its name or nothing was given."""
        return self._rank

    def device(self) -> Device:
        """The device."""
        return self._device

    def __repr__(self) -> str:
        worker = self._worker_name if self._rank is None else f"{_RANK}{self._rank}"
        return str(self._device) if worker is None else f"{worker}/{self._device}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _remote_device) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


RemoteDevice = _remote_device  # for other modules: PyTorch has it as a private class


def _device(text: str) -> Device | None:
    try:
        return Device(text)
    except DeviceError:
        return None
