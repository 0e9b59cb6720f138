"""`map_location`: the devices of the tensors in a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from weft._base.device import CPU, DeviceLike, device
from weft._base.device import device as as_device
from weft._base.guards import is_mapping
from weft._base.of_pytorch import way_from_pytorch
from weft._base.types import AnyCallable, Arg
from weft._checkpoint.packages import default_restore_location, existing_location
from weft.errors import ArgumentError, CheckpointError, WeftError


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

    def to(self, device: DeviceLike) -> StoredElements:
        """These elements on a device."""
        return StoredElements(self._nbytes, as_device(device))

    def cpu(self) -> StoredElements:
        """These elements in the host's memory."""
        return self.to("cpu")

    def cuda(self, index: DeviceLike | int | None = None) -> StoredElements:
        """These elements on a GPU."""
        return self.to(device("cuda", index) if index is None or isinstance(index, int) else index)


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
        return _place
    if isinstance(wanted, (str, bytes, device)):
        name = wanted.decode() if isinstance(wanted, bytes) else str(wanted)
        _place(name, 0)  # which must exist, also for a file without tensors
        return lambda _, nbytes: _place(name, nbytes)
    if is_mapping(wanted):
        named = {str(old): str(new) for old, new in wanted.items()}
        return lambda saved, nbytes: _place(named.get(saved, saved), nbytes)
    if not callable(wanted):
        raise ArgumentError(
            f"'{type(wanted).__name__}' object is not callable: load(): map_location must be a device, a string, a "
            f"dict or a function{way_from_pytorch(wanted)}"
        )

    def ask(saved: str, nbytes: int) -> device:
        try:
            answer = wanted(StoredElements(nbytes, CPU), saved)
        except Exception as error:
            raise Raised(error) from error
        return _place(saved, nbytes) if answer is None else _device_of(answer, "a map_location function")

    return ask


def _place(location: str, nbytes: int) -> device:
    """The device at which elements are put whose location has this name."""
    try:
        answer = default_restore_location(StoredElements(nbytes, CPU), location)
    except WeftError:
        raise
    except Exception as error:  # of a function that a program has registered
        raise Raised(error) from error
    return _device_of(answer, "the function of register_package")


def _device_of(answer: object, source: str) -> device:
    if not isinstance(answer, StoredElements):
        raise CheckpointError(
            f"{source} returns the storage that it was given, on a device, or None; got {type(answer).__name__}"
        )
    return existing_location(answer.device)
