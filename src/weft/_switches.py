"""Switches that programs set at start: threads, determinism, precision, defaults."""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from types import ModuleType
from typing import Any

from weft._base.determinism import Determinism
from weft._base.device import device as device_class
from weft._base.site import warn_user
from weft._base.state import ambient, set_default_device, set_default_dtype, set_field
from weft._lazy.runtime import default_jax_device, fix_tier, matmul_precision, set_matmul_precision
from weft._tensor.arguments import flag
from weft._tensor.composite.convert import TYPE_NAMES
from weft._tensor.convert import resolve_device
from weft.errors import ArgumentError, DeviceError, OptionError, SettingError, ValueRangeError

# ---- threads


def _check_threads(name: str, count: Any) -> None:
    if not isinstance(count, int) or isinstance(count, bool):
        raise SettingError(f"{name} expects an int, but got {type(count).__name__}")
    if count <= 0:
        raise SettingError(f"{name} expects a positive integer")


def get_num_threads() -> int:
    """How many threads a program on the CPU may use: one for each CPU that the process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_num_threads(count: int) -> None:
    """Checked and left at that: XLA's pool has a thread for each CPU, and cannot change.

    To use fewer, limit the process's CPUs before it starts, as `taskset` does.
    """
    _check_threads("set_num_threads", count)


get_num_interop_threads = get_num_threads


def set_num_interop_threads(count: int) -> None:
    """Checked and left at that, as by `set_num_threads`: XLA has one pool for both."""
    _check_threads("set_num_interop_threads", count)


# ---- determinism

_DETERMINISTIC_OPS = "--xla_gpu_deterministic_ops=true"
_DEBUG_MODES = ("default", "warn", "error")


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for results that are the same in every run, and do not depend on what the process has computed before.

    Every program is then compiled before its first run; a run that goes on from a checkpoint ends with the bits of one
    that was never interrupted. On GPUs XLA has to be told before it starts: with `mode`, a warning says so where
    `XLA_FLAGS` does not.
    """
    name = "_set_deterministic_algorithms"
    is_on, warns = flag(mode, "mode", name), flag(warn_only, "warn_only", name)
    set_deterministic_debug_mode((1 if warns else 2) if is_on else 0)


def are_deterministic_algorithms_enabled() -> bool:
    """Whether `use_deterministic_algorithms` was asked for."""
    return Determinism.level > 0


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether `use_deterministic_algorithms` was asked for with `warn_only`."""
    return Determinism.level == 1


def get_deterministic_debug_mode() -> int:
    """0 where determinism was not asked for, 1 with `warn_only`, else 2."""
    return Determinism.level


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """`use_deterministic_algorithms` by a number, or by its name: "default", "warn" or "error"."""
    if not isinstance(debug_mode, int | str):
        raise ArgumentError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if isinstance(debug_mode, str) and debug_mode not in _DEBUG_MODES:
        raise SettingError(
            "invalid value of debug_mode, expected one of `default`, `warn`, `error`, " + f"but got {debug_mode}"
        )
    level = _DEBUG_MODES.index(debug_mode) if isinstance(debug_mode, str) else debug_mode
    if level not in range(3):
        raise SettingError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}")
    Determinism.level = level
    fix_tier(level > 0)
    if level and default_jax_device().platform == "gpu" and _DETERMINISTIC_OPS not in os.environ.get("XLA_FLAGS", ""):
        warnings.warn(
            f"programs on the GPU may add up in any order: start Python with XLA_FLAGS={_DETERMINISTIC_OPS}",
            stacklevel=3,
        )


# ---- numbers

_PRECISIONS = ("highest", "high", "medium")


def set_float32_matmul_precision(precision: str) -> None:
    """How exactly float32 matrices are multiplied on GPUs and TPUs: "highest", "high" or "medium".

    "highest" computes in float32, "high" in TF32 or three products of bfloat16, "medium" in the device's fastest way.
    It counts for operators used for the first time afterwards, and CPUs always compute in float32.
    """
    if precision not in _PRECISIONS:
        raise ValueRangeError(
            f"set_float32_matmul_precision: precision must be one of {', '.join(_PRECISIONS)}, got {precision!r}"
        )
    set_matmul_precision("default" if precision == "medium" else precision)


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` was told; before, what the default device does by itself."""
    precision = matmul_precision()
    if precision is None:
        return "highest" if default_jax_device().platform == "cpu" else "medium"
    return precision if precision in _PRECISIONS else "medium"


def set_flush_denormal(mode: bool) -> bool:
    """Whether the CPU computes as asked: True for True, False for False, since XLA always flushes denormal numbers.

    Arithmetic and comparisons take denormal float32, float64 and bfloat16 numbers as zeros and give none; what only
    moves elements or changes signs keeps them, and float16, which is computed in float32, has them in full.
    """
    if not isinstance(mode, bool):
        raise OptionError(f"flush_denormal expects a bool, but got {type(mode).__name__}")
    return mode


def set_default_tensor_type(t: Any) -> None:
    """Set the default floating type, and the default device for types such as "torch.cuda.FloatTensor"."""
    warn_user(
        "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use torch.set_default_dtype() and "
        "torch.set_default_device() as alternatives."
    )
    name = t if isinstance(t, str) else f"{getattr(t, '__module__', '')}.{getattr(t, '__name__', '')}"
    plain = name.replace("torch.cuda.", "torch.")
    if plain not in TYPE_NAMES:
        raise ArgumentError(
            "invalid type object: only floating-point types are supported as the default type, such as "
            f"'torch.FloatTensor', and not {t!r}"
        )
    set_default_dtype(TYPE_NAMES[plain])
    set_default_device("cuda" if plain != name else "cpu")


# ---- anomalies


def is_anomaly_enabled() -> bool:
    """Whether derivatives are watched for NaN."""
    return ambient().anomaly


is_anomaly_check_nan_enabled = is_anomaly_enabled


def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """Watch derivatives for NaN from here on, or cease to."""
    set_field(anomaly=bool(mode and check_nan))


# ---- devices

_DEVICE_MODULES = ("cpu", "cuda")


def get_device_module(device: Any = None) -> ModuleType:
    """The module of a kind of device, by default of the one that new tensors are made on: `weft.cpu` or `weft.cuda`."""
    kind = resolve_device(None).type if device is None else device_class(device).type
    if kind not in _DEVICE_MODULES:
        raise DeviceError(
            f"Device '{kind}' does not have a corresponding module registered as 'torch.{kind}'; there are "
            f"{', '.join(_DEVICE_MODULES)}"
        )
    return import_module(f"weft.{kind}")
