"""The kernels of the extension `weft._native`: loading them, and what all calls of them share.

It is loaded when it is first asked for. Where it is not built or does not fit this computer, `status` says why.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import ctypes
import platform
import re
import sys
import sysconfig
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.ffi
import jax.numpy as jnp

from weft._base import config
from weft._base.forks import renew_in_forks
from weft.errors import DeviceError, DTypeError, ShapeError

Array = jax.Array

_VERSION = 5  # of the library's targets
_TARGETS = (
    "weft_product_f32",
    "weft_product_f64",
    "weft_product_bf16",
    "weft_biased_product_f32",
    "weft_biased_product_f64",
    "weft_biased_product_bf16",
    "weft_conv",
    "weft_conv_input_gradient",
    "weft_conv_weight_gradient",
    "weft_channel_sums",
    "weft_batch_norm",
    "weft_batch_norm_backward",
    "weft_layer_norm",
    "weft_layer_norm_backward",
    "weft_cross_entropy",
    "weft_cross_entropy_backward",
    "weft_extremes_f32",
    "weft_extremes_f64",
    "weft_extremes_f16",
    "weft_extremes_bf16",
    "weft_attention",
    "weft_attention_backward",
    "weft_lstm",
    "weft_lstm_backward",
    "weft_gru",
    "weft_gru_backward",
    "weft_rnn",
    "weft_rnn_backward",
    "weft_sgd_step",
    "weft_adam_step",
)
_INSTRUCTIONS = {2: "AVX2", 512: "AVX-512"}
_FOR_BFLOAT16 = ("", ", also for bfloat16", ", and AMX for bfloat16")


@dataclass(frozen=True, slots=True)
class _State:
    ready: bool
    words: str
    bfloat16: bool = False


# no cell: found when it is first needed, and the same ever after
_state: list[_State] = []  # one, as soon as it is known
_lock = threading.Lock()
renew_in_forks(globals(), "_lock")


def available() -> bool:
    """Whether the kernels can be called; the first call loads them."""
    return _loaded().ready


def has_bfloat16() -> bool:
    """Whether there are kernels for bfloat16, too: where the CPU has instructions for it."""
    return _loaded().bfloat16


def status() -> str:
    """Which instructions the kernels use, or why there are none."""
    return _loaded().words


def _loaded() -> _State:
    if not _state:
        with _lock:
            if not _state:
                _state.append(_load())
    return _state[0]


def _load() -> _State:
    if not config.NATIVE:
        return _State(False, "turned off by WEFT_NATIVE")
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return _State(False, f"not for {sys.platform} on {platform.machine()}")
    path = _path()
    if path is None:
        return _State(False, "not built: install a C++ compiler, and then Weft again (in a checkout, make native)")
    try:
        _require_whole(path)
        library = ctypes.CDLL(str(path))
        versions = [getattr(library, f"weft_native_{word}")() for word in ("version", "ffi_major", "ffi_minor")]
    except (OSError, AttributeError) as error:
        return _State(False, f"cannot be loaded: {error}")
    missing = next((f"has no {name}" for name in _TARGETS if not hasattr(library, name)), None)
    if reason := _misfit(*versions) or missing:
        return _State(False, f"{path} {reason}; install Weft again (in a checkout, make native)")
    instructions = _INSTRUCTIONS.get(library.weft_native_variant())
    if instructions is None:
        return _State(False, "this CPU has no AVX2")
    try:
        for name in _TARGETS:
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    except Exception as error:  # XLA refuses a handler in words of its own, with types of its own
        return _State(False, f"refused by XLA: {error}")
    bfloat16 = library.weft_native_bf16()
    return _State(True, f"in use, with {instructions}{_FOR_BFLOAT16[bfloat16]}", bfloat16 > 0)


def _path() -> Path | None:
    """The file of the extension."""
    path = Path(__file__).parents[2] / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    return path if path.exists() else None


def _require_whole(path: Path) -> None:
    """`OSError` for a file that was cut off: loading it would end the process. The table of sections is at the end."""
    with path.open("rb") as file:
        header = file.read(64)
    start, size, count = (int.from_bytes(header[i:j], "little") for i, j in ((40, 48), (58, 60), (60, 62)))
    if path.stat().st_size < max(len(header), start + size * count):
        raise OSError(f"{path} is incomplete")


def _misfit(version: int, major: int, minor: int) -> str | None:
    """What the library was built for, if that is not what is here."""
    if version != _VERSION:
        return f"has version {version}, and this Weft needs {_VERSION}"
    header = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    if not header.exists():  # registering will tell
        return None
    numbers = dict(re.findall(r"#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", header.read_text()))
    here = (int(numbers.get("MAJOR", major)), int(numbers.get("MINOR", minor)))
    if major != here[0] or minor > here[1]:
        return f"was built for version {major}.{minor} of XLA's FFI, and jax {jax.__version__} has {here[0]}.{here[1]}"
    return None


def struct_like(shape: Sequence[int], like: Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(shape), like.dtype)


def require_floats(operation: str, *arrays: Array) -> None:
    """All arrays are float32, and the library is there."""
    for array in arrays:
        if array.dtype != jnp.float32:
            raise DTypeError(f"{operation}: the native kernel takes float32, got {array.dtype}")
    require_library(operation)


def require_library(operation: str) -> None:
    if not available():
        raise DeviceError(f"{operation}: the native kernels are {status()}; ask `available()` first")


def require_shape(operation: str, name: str, array: Array, shape: Sequence[int]) -> None:
    if array.shape != tuple(shape):
        raise ShapeError(f"{operation}: {name} has shape {array.shape}, expected {tuple(shape)}")


def is_float32(*arrays: Array | None) -> bool:
    return all(x is None or x.dtype == jnp.float32 for x in arrays) and available()
