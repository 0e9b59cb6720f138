"""The one file that touches jax's configuration, the allocator and device discovery."""

from __future__ import annotations

import ctypes
import platform
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jaxlib.version
import numpy as np

from weft._base import config
from weft._base.device import CPU, device
from weft._lazy.value import Aval
from weft.errors import DeviceError

# mallopt's parameters, from glibc's <malloc.h>
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8
_PAD = 256 << 20


def _tune_allocator() -> None:
    """Keep freed pages in the process: XLA:CPU allocates its temporaries anew in every run.

    One arena, no mmap, no trim, 256 MB of padding. Only glibc has these switches.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    for parameter, value in ((_M_ARENA_MAX, 1), (_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1), (_M_TOP_PAD, _PAD)):
        libc.mallopt(parameter, value)


def _configure() -> None:
    jax.config.update("jax_enable_x64", True)
    if config.COMPILE_CACHE:
        folder = Path(config.COMPILE_CACHE) / f"jaxlib-{jaxlib.version.__version__}"
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    if config.TUNE_ALLOCATOR:
        _tune_allocator()


_configure()

_PLATFORMS = {"cpu": "cpu", "cuda": "cuda", "gpu": "gpu", "tpu": "tpu", "mps": "METAL", "xla": None}


@lru_cache(maxsize=64)
def jax_device(where: device) -> Any:
    """The jax device behind a name. `xla` is the default backend's; `RuntimeError` when there is none such."""
    if where.type not in _PLATFORMS:
        raise DeviceError(f"{where}: there are no {where.type} devices here; use one of {', '.join(_PLATFORMS)}")
    platform_name = _PLATFORMS[where.type]
    try:
        found = jax.local_devices(backend=platform_name)
    except RuntimeError as error:
        raise DeviceError(f"{where}: this machine has no {where.type} device that jax can use") from error
    index = where.index or 0
    if index >= len(found):
        raise DeviceError(f"{where}: this machine has {len(found)} {where.type} device(s), counted from 0")
    return found[index]


def default_jax_device() -> Any:
    """Where programs without array inputs run unless told otherwise."""
    return jax_device(device("xla", 0))


def matmul_precision() -> str | None:
    """What `set_matmul_precision` was told, or None."""
    return jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue]  made at run time


def set_matmul_precision(precision: str) -> None:
    """How exactly matrices of float32 are multiplied, in jax's words."""
    jax.config.update("jax_default_matmul_precision", precision)


def device_of(array: jax.Array) -> device:
    """The name of the device that holds an array."""
    return named(next(iter(array.devices())))


def named(held: Any) -> device:
    """The name of a jax device."""
    if held.platform == "cpu" and held.id == 0:
        return CPU
    return device("cuda" if held.platform == "gpu" else held.platform, held.id)


def new_array(aval: Aval, number: complex) -> jax.Array:
    """A new array of this type with one number everywhere."""
    return jax.device_put(np.full(aval.shape, number, aval.dtype.numpy), jax_device(aval.device))


filled_array = lru_cache(maxsize=256)(new_array)
"""The same, shared: for constants."""
