"""What libraries call in PyTorch's extension module; `weft._C` has the same names."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from enum import Enum, auto
from typing import Any

from weft._autograd.engine import current_pass, differentiated, is_running
from weft._base.device import DeviceLike, default_device
from weft._base.device import device as Device
from weft._base.dtype import DType
from weft._base.state import ambient, set_field
from weft._tensor.examples import Examples
from weft._tensor.node import Node, node_of
from weft._tensor.overriding import setting
from weft._tensor.tensor import Tensor
from weft.accelerator import current_accelerator
from weft.backends import cudnn
from weft.compiler import is_tracing

_TensorMeta = type(Tensor)


def _get_tracing_state() -> Any:
    """A true value while a program is traced, else None."""
    return True if is_tracing() else None


def _is_tracing() -> bool:
    """Whether a program is traced."""
    return is_tracing()


def _has_compatible_shallow_copy_type(tensor: Tensor, other: Tensor) -> bool:
    """Whether `tensor.data = other` is possible: a tensor keeps its layout, and whether it has elements."""
    return tensor.layout == other.layout and tensor.is_meta == other.is_meta


def _get_accelerator() -> Device:
    """The type of the accelerator, or of the CPU if there is none."""
    return current_accelerator() or Device("cpu")


def _parse_to(
    device: DeviceLike | None = None,
    dtype: DType | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    **options: object,
) -> tuple[Device | None, DType | None, bool, Any]:
    """Device, type, `non_blocking` and `memory_format` of a call of `to`, whose first argument may be any of these."""
    if isinstance(device, Tensor):
        device, dtype = device.device, device.dtype
    elif isinstance(device, DType):
        device, dtype = None, device
    return None if device is None else Device(device), dtype, non_blocking, options.get("memory_format")


class _Functions(type):
    def __getattr__(cls, name: str) -> Any:
        return getattr(sys.modules["weft"], name)


class _VariableFunctionsClass(metaclass=_Functions):
    """Has PyTorch's functions as its methods, by which its pickles name them, such as `torch.tanh` in a module."""


# --- keys of PyTorch's dispatcher, which there is none of: sets of them can be made, and mean nothing ---------------


class DispatchKey(Enum):
    """The keys that libraries name."""

    Autograd = auto()
    AutogradCPU = auto()
    AutogradCUDA = auto()
    CPU = auto()
    CUDA = auto()
    CompositeExplicitAutograd = auto()
    CompositeImplicitAutograd = auto()
    Meta = auto()
    Python = auto()
    AutocastCPU = auto()
    AutocastCUDA = auto()
    AutocastXPU = auto()


class DispatchKeySet(frozenset[DispatchKey]):
    """A set of keys."""

    def __new__(cls, key: DispatchKey) -> DispatchKeySet:
        return super().__new__(cls, (key,))


class _ExcludeDispatchKeyGuard(nullcontext[None]):
    """A block that changes nothing."""


# --- overriding of functions ------------------------------------------------------------------------------------------


class DisableTorchFunctionSubclass(setting):
    """A block in which classes of arguments override nothing; modes still do."""

    def __init__(self) -> None:
        super().__init__(by_classes=False)


class DisableTorchFunction(setting):
    """A block in which neither classes of arguments nor modes override anything."""

    def __init__(self) -> None:
        super().__init__(by_classes=False, by_modes=False)


class _EnableTorchFunction(setting):
    """A block, within one of the others, in which classes of arguments and modes override functions again."""

    def __init__(self) -> None:
        super().__init__(by_classes=True, by_modes=True)


def _is_torch_function_enabled() -> bool:
    return ambient().overrides.by_classes


def _is_torch_function_all_disabled() -> bool:
    overrides = ambient().overrides
    return not (overrides.by_classes or overrides.by_modes)


def _is_torch_function_mode_enabled() -> bool:
    return ambient().overrides.mode is not None


def _len_torch_function_stack() -> int:
    return len(ambient().overrides.modes)


def _get_function_stack_at(index: int) -> Any:
    return ambient().overrides.modes[index]


def _push_on_torch_function_stack(mode: Any) -> None:
    overrides = ambient().overrides
    set_field(overrides=overrides.replaced(modes=(*overrides.modes, mode)))


def _pop_torch_function_stack() -> Any:
    overrides = ambient().overrides
    set_field(overrides=overrides.replaced(modes=overrides.modes[:-1]))
    return overrides.modes[-1]


# --- what is set, and what is going on --------------------------------------------------------------------------------


def _get_cudnn_enabled() -> bool:
    """The switch `weft.backends.cudnn.enabled`."""
    return cudnn.enabled


def _get_default_device() -> str:
    """The type of the default device."""
    return (default_device() or Device("cpu")).type


def _get_privateuse1_backend_name() -> str:
    """The name of devices that an extension would add, which none does."""
    return "privateuseone"


def _are_functorch_transforms_active() -> bool:
    """Whether a transform of functions, such as `vmap` or `grad`, runs."""
    state = ambient()
    return state.context.transform is not None or isinstance(state.capture, Examples)


def _current_graph_task_id() -> int:
    """A number of the backward pass that this thread runs; -1 if it runs none."""
    return id(current_pass()) if is_running() else -1


def _is_checkpoint_valid() -> bool:
    """Whether a backward pass may run within this one: always, also within one to chosen inputs."""
    return True


def _current_autograd_node() -> Node | None:
    """The node whose derivative this thread records; None outside of that."""
    vertex = differentiated()
    return None if vertex is None else node_of(vertex)
