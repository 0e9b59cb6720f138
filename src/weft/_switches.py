"""Global settings: threads, determinism, precision, defaults."""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from types import ModuleType

from weft._base.determinism import DETERMINISM
from weft._base.device import DeviceLike, set_default_device
from weft._base.device import device as device_class
from weft._base.site import Repeated, warn_user
from weft._base.state import ambient, set_default_dtype, set_field
from weft._base.threads import cpus
from weft._lazy.runtime import default_jax_device, fix_tier, matmul_precision, set_matmul_precision
from weft._lazy.threads import set_threads, threads
from weft._tensor.arguments import flag
from weft._tensor.composite.convert import TYPE_NAMES
from weft._tensor.convert import resolve_device
from weft.errors import ArgumentError, DeviceError, OptionError, SettingError, ValueRangeError

# ---- threads


def _check_threads(name: str, count: object) -> None:
    if not isinstance(count, int) or isinstance(count, bool):
        raise SettingError(f"{name} expects an int, but got {type(count).__name__}")
    if count <= 0:
        raise SettingError(f"{name} expects a positive integer")


def get_num_threads() -> int:
    """The number of threads on which an operator is computed at most, on a CPU.

    It is what `set_num_threads` was called with; before that, the environment's `OMP_NUM_THREADS`, or one thread for
    each CPU on which the process may run.
    """
    return threads()


def set_num_threads(count: int) -> None:
    """Compute on at most `count` threads on a CPU, the caller's included.

    This holds for the first tier, which interprets. XLA's pool, on which compiled programs run, has a thread for each
    CPU and cannot be changed: to have fewer, limit the process's CPUs before it starts, as with `taskset`.

    Raises RuntimeError unless `count` is a positive integer.

        >>> torch.set_num_threads(1)
        >>> torch.get_num_threads()
        1
    """
    _check_threads("set_num_threads", count)
    set_threads(count)


def get_num_interop_threads() -> int:
    """The number of threads in XLA's pool, which runs independent parts of a compiled program at a time."""
    return cpus()


def set_num_interop_threads(count: int) -> None:
    """Check the number; it has no effect, since XLA's pool cannot be changed."""
    _check_threads("set_num_interop_threads", count)


# ---- determinism

_DETERMINISTIC_OPS = "--xla_gpu_deterministic_ops=true"
_DEBUG_MODES = ("default", "warn", "error")


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Request results that are the same in every run, and do not depend on what the process has computed before.

    Every program is then compiled before its first run, and a run resumed from a checkpoint ends with the same bits as
    an uninterrupted one. On GPUs, XLA needs an option in `XLA_FLAGS` before it starts; a warning says so if it is
    missing.
    """
    name = "_set_deterministic_algorithms"
    is_on, warns = flag(mode, "mode", name), flag(warn_only, "warn_only", name)
    set_deterministic_debug_mode((1 if warns else 2) if is_on else 0)


def are_deterministic_algorithms_enabled() -> bool:
    """Whether `use_deterministic_algorithms` is on."""
    return DETERMINISM.get() > 0


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether `use_deterministic_algorithms` is on with `warn_only`."""
    return DETERMINISM.get() == 1


def get_deterministic_debug_mode() -> int:
    """0 if determinism is off, 1 with `warn_only`, else 2."""
    return DETERMINISM.get()


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """`use_deterministic_algorithms` by number, or by name: "default", "warn" or "error"."""
    if not isinstance(debug_mode, int | str):
        raise ArgumentError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if isinstance(debug_mode, str) and debug_mode not in _DEBUG_MODES:
        raise SettingError(
            "invalid value of debug_mode, expected one of `default`, `warn`, `error`, " + f"but got {debug_mode}"
        )
    level = _DEBUG_MODES.index(debug_mode) if isinstance(debug_mode, str) else debug_mode
    if level not in range(3):
        raise SettingError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}")
    DETERMINISM.set(level)
    fix_tier(level > 0)
    if level and default_jax_device().platform == "gpu" and _DETERMINISTIC_OPS not in os.environ.get("XLA_FLAGS", ""):
        warnings.warn(
            f"programs on the GPU may add up in any order: start Python with XLA_FLAGS={_DETERMINISTIC_OPS}",
            stacklevel=3,
        )


# ---- numbers

_PRECISIONS = ("highest", "high", "medium")


def set_float32_matmul_precision(precision: str) -> None:
    """Set the precision of float32 matrix products on GPUs and TPUs: "highest", "high" or "medium".

    "highest" computes in float32, "high" in TF32 or by three bfloat16 products, "medium" in the device's fastest way.
    It affects operators that are used for the first time afterwards. CPUs always compute in float32.
    """
    if precision not in _PRECISIONS:
        raise ValueRangeError(
            f"set_float32_matmul_precision: precision must be one of {', '.join(_PRECISIONS)}, got {precision!r}"
        )
    set_matmul_precision("default" if precision == "medium" else precision)


def get_float32_matmul_precision() -> str:
    """The precision that was set; before that, the default device's own."""
    precision = matmul_precision()
    if precision is None:
        return "highest" if default_jax_device().platform == "cpu" else "medium"
    return precision if precision in _PRECISIONS else "medium"


def set_flush_denormal(mode: bool) -> bool:
    """Whether the CPU computes as requested: True for True and False for False, since XLA always flushes denormals.

    Arithmetic and comparisons treat denormal float32, float64 and bfloat16 numbers as zero, and produce none. Operators
    that only move elements or change signs keep them. float16 is computed in float32, and keeps its denormals.
    """
    if not isinstance(mode, bool):
        raise OptionError(f"flush_denormal expects a bool, but got {type(mode).__name__}")
    return mode


def set_default_tensor_type(t: object) -> None:
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
    """Whether anomaly detection is on."""
    return ambient().watchers.anomaly


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly detection, where it is on, looks for NaN."""
    return ambient().watchers.check_nan


def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """Switch anomaly detection on or off from now on."""
    set_field(anomaly=bool(mode), check_nan=bool(check_nan))


# ---- warnings


def set_warn_always(b: bool, /) -> None:
    """Let a line of a program give a warning of an operator each time it runs, and not only the first time."""
    if not isinstance(b, bool):
        raise OptionError(f"setWarnOnlyOnce expects a bool, but got {type(b).__name__}")
    Repeated.always = b


def is_warn_always_enabled() -> bool:
    """Whether a line gives a warning each time it runs."""
    return Repeated.always


# ---- devices

_DEVICE_MODULES = ("cpu", "cuda", "mps", "mtia", "xpu")


def get_device_module(device: DeviceLike | None = None) -> ModuleType:
    """The module of a kind of device, by default of the one that new tensors are made on, such as `weft.cuda`."""
    kind = resolve_device(None).type if device is None else device_class(device).type
    if kind not in _DEVICE_MODULES:
        raise DeviceError(
            f"Device '{kind}' does not have a corresponding module registered as 'torch.{kind}'; there are "
            f"{', '.join(_DEVICE_MODULES)}"
        )
    return import_module(f"weft.{kind}")
