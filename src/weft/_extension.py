"""What libraries call in PyTorch's extension module, which `weft._C` has under PyTorch's names."""

from __future__ import annotations

from contextlib import nullcontext
from enum import Enum, auto
from types import SimpleNamespace
from typing import Any

from weft._base.device import device as Device
from weft._base.dtype import DType
from weft._tensor.tensor import Tensor
from weft.accelerator import current_accelerator
from weft.compiler import is_tracing
from weft.errors import UnsupportedCallError

_TensorMeta = type(Tensor)


def _get_tracing_state() -> Any:
    """A true value while a program is traced, else None."""
    return True if is_tracing() else None


def _get_accelerator() -> Device:
    """The type of the accelerator, or of the CPU if there is none."""
    return current_accelerator() or Device("cpu")


def _parse_to(
    device: Any = None, dtype: DType | None = None, non_blocking: bool = False, copy: bool = False, **options: Any
) -> tuple[Device | None, DType | None, bool, Any]:
    """Device, type, `non_blocking` and `memory_format` of a call of `to`, whose first argument may be any of these."""
    if isinstance(device, Tensor):
        device, dtype = device.device, device.dtype
    elif isinstance(device, DType):
        device, dtype = None, device
    return None if device is None else Device(device), dtype, non_blocking, options.get("memory_format")


class PyTorchFileReader:
    """Would read the entries of a file of PyTorch's. Making one raises `NotImplementedError`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedCallError(
            "PyTorchFileReader: read files of PyTorch's with weft.load; their entries as a zipfile"
        )


_nn = SimpleNamespace(_parse_to=_parse_to)


# --- keys of PyTorch's dispatcher, which there is none of: sets of them can be made, and mean nothing ---------------


class DispatchKey(Enum):
    """The keys that libraries name."""

    AutocastCPU = auto()
    AutocastCUDA = auto()
    AutocastXPU = auto()


class DispatchKeySet(frozenset[DispatchKey]):
    """A set of keys."""

    def __new__(cls, key: DispatchKey) -> DispatchKeySet:
        return super().__new__(cls, (key,))


class _ExcludeDispatchKeyGuard(nullcontext[None]):
    """A block that changes nothing."""
