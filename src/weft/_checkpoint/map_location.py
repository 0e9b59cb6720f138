"""`map_location`: the devices of the tensors in a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from weft._base.device import DeviceLike, device
from weft._base.guards import is_mapping
from weft._base.of_pytorch import way_from_pytorch
from weft._base.types import AnyCallable, Arg
from weft._tensor.convert import existing
from weft.errors import ArgumentError, CheckpointError, DeviceError


class StoredElements:
    """The argument of a `map_location` function: elements in a file, which can be sent to a device.

    Return it unchanged (or its `cpu()`) for the CPU, or the result of `cuda(index)` or `to(device)` for another device.
    """

    def __init__(self, nbytes: int, target: device) -> None:
        self._nbytes = nbytes
        self.device = target

    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self._nbytes

    def __len__(self) -> int:
        return self._nbytes

    def to(self, target: DeviceLike) -> StoredElements:
        """These elements on a device."""
        return StoredElements(self._nbytes, device(target))

    def cpu(self) -> StoredElements:
        """These elements in the host's memory."""
        return self.to("cpu")

    def cuda(self, index: int | None = None) -> StoredElements:
        """These elements on a GPU."""
        return self.to(device("cuda", index))


class Raised(Exception):
    """Carries what a `map_location` function has raised past all who would take it for a fault of the file."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


Locate = Callable[[str, int], device]
"""(saved location, bytes) of a tensor -> its new device."""


MapLocation: TypeAlias = DeviceLike | Mapping[Arg, DeviceLike] | AnyCallable | None
"""A device, a mapping from saved devices to others, or a function of elements and their saved location."""


def locator(wanted: MapLocation) -> Locate:
    """The function that `map_location` stands for. `TypeError` for an invalid argument."""
    if wanted is None:
        return lambda saved, _: _existing(device(saved))
    if isinstance(wanted, (str, device)):
        fixed = _existing(device(wanted))
        return lambda saved, _: fixed
    if is_mapping(wanted):
        named = {str(old): device(new) for old, new in wanted.items()}
        return lambda saved, _: _existing(named.get(saved) or device(saved))
    if not callable(wanted):
        raise ArgumentError(
            f"'{type(wanted).__name__}' object is not callable: load(): map_location must be a device, a string, a "
            f"dict or a function{way_from_pytorch(wanted)}"
        )

    def ask(saved: str, nbytes: int) -> device:
        try:
            answer = wanted(StoredElements(nbytes, device("cpu")), saved)
        except Exception as error:
            raise Raised(error) from error
        if answer is None:
            return _existing(device(saved))
        if not isinstance(answer, StoredElements):
            raise CheckpointError(
                "a map_location function returns the storage that it was given, on a device, or None; got "
                f"{type(answer).__name__}"
            )
        return _existing(answer.device)

    return ask


def _existing(target: device) -> device:
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
