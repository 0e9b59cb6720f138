"""What PyTorch's programs and libraries take from its extension module, under these names."""

from __future__ import annotations

from typing import Any

from weft._base.exports import on_first_use as _on_first_use
from weft._base.state import ambient
from weft._base.usage import log_api_usage_once as _log_api_usage_once
from weft._extension import DispatchKey as DispatchKey
from weft._extension import DispatchKeySet as DispatchKeySet
from weft._extension import PyTorchFileReader as PyTorchFileReader
from weft._extension import _ExcludeDispatchKeyGuard as _ExcludeDispatchKeyGuard
from weft._extension import _get_accelerator as _get_accelerator
from weft._extension import _get_tracing_state as _get_tracing_state
from weft._extension import _nn as _nn
from weft._extension import _TensorMeta as _TensorMeta
from weft._tensor.base import TensorBase as _TensorBase
from weft._tensor.overriding import disabled as _disabled_torch_function_impl
from weft._tensor.overriding import pop_mode as _pop_torch_function_stack
from weft._tensor.overriding import push_mode as _push_on_torch_function_stack
from weft._tensor.overriding import setting

__getattr__, __dir__ = _on_first_use(__name__, {}, ("_profiler",))

TensorBase = _TensorBase
"""What `Tensor` derives from."""


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


__all__ = [
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "TensorBase",
    "_EnableTorchFunction",
    "_TensorBase",
    "_disabled_torch_function_impl",
    "_get_function_stack_at",
    "_is_torch_function_all_disabled",
    "_is_torch_function_enabled",
    "_is_torch_function_mode_enabled",
    "_len_torch_function_stack",
    "_log_api_usage_once",
    "_pop_torch_function_stack",
    "_push_on_torch_function_stack",
]
