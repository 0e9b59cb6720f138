"""`torch_xla.runtime`: how many replicas and devices there are, and which this process is."""

from __future__ import annotations

import os
from pathlib import Path

import jax

from weft._base.device import device
from weft._base.dtype import bfloat16 as bfloat16
from weft._base.site import warn_user
from weft._base.types import Json
from weft._lazy import compile_cache
from weft._lazy.runtime import in_runtime, jax_device, started_devices
from weft.errors import DeviceError, PreconditionError
from weft.ops._jax import update_config
from weft.xla import _devices
from weft.xla._flags import flag
from weft.xla._replicas import replicas


def device_type() -> str:
    """The kind of devices: "CPU", "CUDA" or "TPU"; PJRT_DEVICE where that is set."""
    return _kind_of(os.environ.get("PJRT_DEVICE") or _platform())


def _kind_of(pjrt_device: str) -> str:
    return pjrt_device.split("_")[0]


def _platform() -> str:
    platform: str = jax_device(device("xla", 0)).platform
    return "CUDA" if platform == "gpu" else platform.upper()


def set_device_type(pjrt_device: str) -> None:
    """Name the kind of devices. jax chooses devices when it starts, by JAX_PLATFORMS. Replicas cannot change it."""
    if in_runtime() is not None and _kind_of(pjrt_device) != device_type():
        raise PreconditionError("Can't change device type after PJRT client is initialized")
    os.environ["PJRT_DEVICE"] = pjrt_device


def using_pjrt() -> bool:
    """True: jax's devices are PJRT devices."""
    return True


def is_bf16_supported() -> bool:
    """Whether devices compute with bfloat16."""
    return True


def world_size() -> int:
    """The number of replicas."""
    return replicas().size


def global_ordinal() -> int:
    """This replica's number in the job."""
    return replicas().ordinal


def local_ordinal() -> int:
    """This replica's number on its host."""
    return replicas().local_ordinal


def get_local_process_index() -> int:
    """The number of this process on its host: that of its replica."""
    return replicas().local_ordinal


def process_index() -> int:
    """The number of this process in the job: that of its replica."""
    return replicas().ordinal


def process_count() -> int:
    """The number of processes of the job: one for each replica."""
    return replicas().size


def local_process_count() -> int:
    """The number of processes of the job on this host."""
    return replicas().local_size


def host_index() -> int:
    """The number of this host; replicas are numbered host by host."""
    job = replicas()
    return (job.ordinal - job.local_ordinal) // job.local_size


def local_device_count() -> int:
    """The number of devices of this host that replicas use."""
    return addressable_device_count() * local_process_count()


def addressable_device_count() -> int:
    """The number of devices of this process that replicas use: one in a job."""
    return 1 if replicas().size > 1 else addressable_runtime_device_count()


def global_device_count() -> int:
    """The number of devices of the job that replicas use."""
    return replicas().size if replicas().size > 1 else addressable_runtime_device_count()


def addressable_runtime_device_count() -> int:
    """The number of devices of this process."""
    return len(started_devices())


def global_runtime_device_count() -> int:
    """The number of devices of all processes."""
    return len(started_devices(everywhere=True))


def local_device_attributes() -> list[dict[str, Json]]:
    """The attributes of the devices of this process."""
    return [_attributes(held) for held in started_devices()]


def global_runtime_device_attributes() -> list[dict[str, Json]]:
    """The attributes of the devices of all processes."""
    return [_attributes(held) for held in started_devices(everywhere=True)]


def runtime_device_attributes(device: str) -> dict[str, Json]:
    """The attributes of the device with this name by hardware, such as "CPU:0"; `RuntimeError` if there is none."""
    attributes = {one["name"]: one for one in global_runtime_device_attributes()}
    if device not in attributes:
        raise DeviceError(f"runtime_device_attributes: there is no device {device!r}; there are {[*attributes]}")
    return attributes[device]


def _attributes(held: jax.Device) -> dict[str, Json]:
    return {"name": f"{held.platform.upper()}:{held.id}", "kind": held.device_kind, "process": held.process_index}


def xla_device(n: int | None = None) -> device:
    """Device `n` of this process, by default the first."""
    return _devices.xla_device(n)


def get_master_ip() -> str:
    """The address of the host of replica 0."""
    return os.environ.get("MASTER_ADDR", "localhost")


def use_spmd(auto: bool = False) -> None:
    """Set XLA_USE_SPMD: `xla_device()` is the first device. `mark_sharding` splits its tensors over all of them."""
    if auto:
        warn_user("use_spmd: auto-sharding is XLA's on TPUs only; programs are sharded as they say")
    os.environ["XLA_USE_SPMD"] = "1"


def is_spmd() -> bool:
    """Whether XLA_USE_SPMD is set."""
    return flag("XLA_USE_SPMD")


def initialize_cache(path: str, readonly: bool = False) -> None:
    """Keep compiled programs in this folder, to be found by later runs; not where others could put some, too."""
    del readonly
    if compile_cache.prepare(Path(path)):
        update_config("jax_compilation_cache_dir", path)
