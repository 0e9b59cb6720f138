"""The autocast state of this thread, setting by setting."""

from __future__ import annotations

import warnings
from dataclasses import replace

from weft._base.autocast import DEFAULT_TYPES, DTYPE_INDEX
from weft._base.device import device
from weft._base.dtype import DType
from weft._base.state import ambient, set_field
from weft._base.types import Arg
from weft._tensor.kind_names import kind_and_advice
from weft.errors import AmpError, ArgumentError


def is_autocast_available(device_type: str) -> bool:
    """Whether devices of this type have autocast."""
    return _device_type(device_type, "is_autocast_available") in DEFAULT_TYPES


def type_of(device_type: object, function: str) -> str:
    """The type in a type of device, or in a device such as "cpu:0"; `RuntimeError` for those without autocast."""
    kind = _device_type(device_type, function)
    if kind not in DTYPE_INDEX:
        raise AmpError(f"User specified an unsupported autocast device_type '{device_type}'")
    return kind


def _dtype_index(device_type: object, function: str) -> int:
    """The index of a type of device in `Autocast.dtypes`."""
    return DTYPE_INDEX[type_of(device_type, function)]


def _device_type(device_type: object, function: str) -> str:
    """The type in a type of device, or in a device; `TypeError` for what is no string."""
    if not isinstance(device_type, str):
        raise ArgumentError(f"{function}(): argument 'device_type' must be str, not {type(device_type).__name__}")
    return device(device_type).type


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether operators on devices of this type are cast here."""
    return type_of(device_type, "is_autocast_enabled") in ambient().autocast.enabled


def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None) -> None:
    """Switch casting for a type of device, by default CUDA, for the rest of this thread or region."""
    name = "set_autocast_enabled"
    kind, on = ("cuda", device_type) if enabled is None else (device_type, enabled)
    if not isinstance(on, bool):
        raise ArgumentError(f"{name}(): argument 'enabled' must be bool, not {type(on).__name__}")
    kind, state = type_of(kind, name), ambient().autocast
    change(enabled=state.enabled | {kind} if on else state.enabled - {kind})


def get_autocast_dtype(device_type: str) -> DType:
    """The lower precision type of devices of a type."""
    return ambient().autocast.dtypes[_dtype_index(device_type, "get_autocast_dtype")]


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """Set the lower precision type of devices of a type, for the rest of this thread or region."""
    if not isinstance(dtype, DType):
        raise ArgumentError(f"set_autocast_dtype(): argument 'dtype' must be torch.dtype, not {kind_and_advice(dtype)}")
    dtypes = list(ambient().autocast.dtypes)
    dtypes[_dtype_index(device_type, "set_autocast_dtype")] = dtype
    change(dtypes=tuple(dtypes))


def is_autocast_cache_enabled() -> bool:
    """Whether the casts of weights are kept until the outermost region ends."""
    return ambient().autocast.caches


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Keep the casts of weights, or make one for each use, for the rest of this thread or region."""
    if not isinstance(enabled, bool):
        raise ArgumentError(f"enabled must be a bool (got {type(enabled).__name__})")
    change(caches=enabled)


def clear_autocast_cache() -> None:
    """Forget the casts of weights that are kept."""
    ambient().autocast.kept.clear()


def autocast_increment_nesting() -> int:
    """Note that a region begins; returns the number of nested regions."""
    nesting = ambient().autocast.nesting + 1
    change(nesting=nesting)
    return nesting


def autocast_decrement_nesting() -> int:
    """Note that a region ends; returns the number of nested regions."""
    nesting = ambient().autocast.nesting - 1
    change(nesting=nesting)
    return nesting


def change(**fields: Arg) -> None:
    """Set fields of the autocast state. The first change in a thread gives it its own cache of casts."""
    state = ambient().autocast
    if "kept" not in fields and state.nesting == 0 and not state.kept:
        fields["kept"] = {}
    set_field(autocast=replace(state, **fields))


# --- deprecated: one function for each type of device ---------------------------------------------------------------


def _deprecated(old: str, new: str) -> None:
    warnings.warn(f"torch.{old} is deprecated. Please use torch.{new} instead.", DeprecationWarning, stacklevel=3)


def is_autocast_cpu_enabled() -> bool:
    """`is_autocast_enabled("cpu")`."""
    _deprecated("is_autocast_cpu_enabled()", "is_autocast_enabled('cpu')")
    return is_autocast_enabled("cpu")


def is_autocast_xla_enabled() -> bool:
    """`is_autocast_enabled("xla")`."""
    _deprecated("is_autocast_xla_enabled()", "is_autocast_enabled('xla')")
    return is_autocast_enabled("xla")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """`set_autocast_enabled("cpu", enabled)`."""
    _deprecated("set_autocast_cpu_enabled(enabled)", "set_autocast_enabled('cpu', enabled)")
    set_autocast_enabled("cpu", enabled)


def set_autocast_xla_enabled(enabled: bool) -> None:
    """`set_autocast_enabled("xla", enabled)`."""
    _deprecated("set_autocast_xla_enabled(enabled)", "set_autocast_enabled('xla', enabled)")
    set_autocast_enabled("xla", enabled)


def get_autocast_cpu_dtype() -> DType:
    """`get_autocast_dtype("cpu")`."""
    _deprecated("get_autocast_cpu_dtype()", "get_autocast_dtype('cpu')")
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> DType:
    """`get_autocast_dtype("cuda")`."""
    _deprecated("get_autocast_gpu_dtype()", "get_autocast_dtype('cuda')")
    return get_autocast_dtype("cuda")


def get_autocast_xla_dtype() -> DType:
    """`get_autocast_dtype("xla")`."""
    _deprecated("get_autocast_xla_dtype()", "get_autocast_dtype('xla')")
    return get_autocast_dtype("xla")


def set_autocast_cpu_dtype(dtype: DType) -> None:
    """`set_autocast_dtype("cpu", dtype)`."""
    _deprecated("set_autocast_cpu_dtype(dtype)", "set_autocast_dtype('cpu', dtype)")
    set_autocast_dtype("cpu", dtype)


def set_autocast_gpu_dtype(dtype: DType) -> None:
    """`set_autocast_dtype("cuda", dtype)`."""
    _deprecated("set_autocast_gpu_dtype(dtype)", "set_autocast_dtype('cuda', dtype)")
    set_autocast_dtype("cuda", dtype)


def set_autocast_xla_dtype(dtype: DType) -> None:
    """`set_autocast_dtype("xla", dtype)`."""
    _deprecated("set_autocast_xla_dtype(dtype)", "set_autocast_dtype('xla', dtype)")
    set_autocast_dtype("xla", dtype)
