"""Information about the machine for bug reports; `python -m weft.utils.collect_env` prints it."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import distributions, version
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

import weft
from weft._base.environment import displayed_value
from weft._lazy.runtime import started_devices

_PACKAGES = re.compile(
    r"(jax|nvidia|libtpu|torch|tensorboard|numpy|scipy|ml[-_]dtypes|opt[-_]einsum|optax|safetensors|pooch|rich|"
    r"matplotlib|pillow|protobuf|scikit[-_]learn|weft)",
    re.IGNORECASE,
)
_VARIABLES = ("WEFT_", "XLA_", "JAX_", "CUDA_VISIBLE_DEVICES")
_PATIENCE = 10  # seconds until a tool that is run is given up


class SystemEnv(NamedTuple):
    """The result of `get_env_info`; an entry is None if it could not be determined.

    `environment` has the variables that affect how programs are computed; of those that are not known, the names.
    `pip_packages` has lines such as `name==version`.
    """

    weft_version: str
    jax_version: str
    jaxlib_version: str
    numpy_version: str
    os: str
    libc_version: str | None
    gcc_version: str | None
    clang_version: str | None
    python_version: str
    python_platform: str
    devices: Sequence[str] | None
    nvidia_driver_version: str | None
    cpu_model: str | None
    cpu_count: int | None
    memory_bytes: int | None
    environment: Sequence[str]
    pip_packages: Sequence[str]


def get_env_info() -> SystemEnv:
    """Collect the information. An entry is None if its tool is missing, fails or takes too long."""
    return SystemEnv(
        weft_version=weft.version.weft,
        jax_version=jax.__version__,
        jaxlib_version=version("jaxlib"),
        numpy_version=np.__version__,
        os=f"{_os_name()} ({platform.machine()})",
        libc_version="-".join(platform.libc_ver()).strip("-") or None,
        gcc_version=_first_line("gcc", "--version"),
        clang_version=_first_line("clang", "--version"),
        python_version=f"{' '.join(sys.version.split())} ({sys.maxsize.bit_length() + 1}-bit runtime)",
        python_platform=platform.platform(),
        devices=_devices(),
        nvidia_driver_version=_first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        cpu_model=_cpu_model(),
        cpu_count=os.cpu_count(),
        memory_bytes=_memory(),
        environment=_environment(),
        pip_packages=_packages(),
    )


def pretty_str(envinfo: SystemEnv) -> str:
    """The report as text. It reads nothing but its argument."""
    missing = "Could not collect"
    texts = {name: missing if value is None else value for name, value in envinfo._asdict().items()}
    memory = missing if envinfo.memory_bytes is None else f"{envinfo.memory_bytes / 2**30:.1f} GiB"
    packages = [f"[pip3] {line}" for line in envinfo.pip_packages] or ["No relevant packages"]
    devices = [missing] if envinfo.devices is None else envinfo.devices
    lines = [
        "Weft version: {weft_version}",
        "JAX version: {jax_version}",
        "jaxlib version: {jaxlib_version}",
        "NumPy version: {numpy_version}",
        "",
        "OS: {os}",
        "Libc version: {libc_version}",
        "GCC version: {gcc_version}",
        "Clang version: {clang_version}",
        "",
        "Python version: {python_version}",
        "Python platform: {python_platform}",
        "Nvidia driver version: {nvidia_driver_version}",
        "",
        "CPU: {cpu_model}",
        "CPU(s): {cpu_count}",
    ]
    parts = [line.format(**texts) for line in lines]
    parts += [f"Memory: {memory}", "", "Devices:", *devices, "", "Environment:", *(envinfo.environment or ["None set"])]
    return "\n".join([*parts, "", "Versions of relevant libraries:", *packages])


def get_pretty_env_info() -> str:
    """The report about this machine."""
    return pretty_str(get_env_info())


def main() -> None:
    """Print the report."""
    print("Collecting environment information...")
    print(get_pretty_env_info())


# --- collecting -------------------------------------------------------------------------------------------------


def _first_line(*command: str) -> str | None:
    """The first line of a tool's output, or None if it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(done.stdout.splitlines()), None)


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):  # not Linux, or without that file
        return f"{platform.system()} {platform.release()}"


def _devices() -> list[str] | None:
    try:
        devices = started_devices(everywhere=True)
    except RuntimeError:  # a backend that cannot be started
        return None
    return [f"{device.platform}:{device.id} {device.device_kind}" for device in devices]


def _cpu_model() -> str | None:
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or None
    match = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return match[1] if match else platform.processor() or None


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # unknown here, or not POSIX
        return None


def _environment() -> list[str]:
    variables = sorted(os.environ.items())
    return [f"{name}={displayed_value(name, value)}" for name, value in variables if name.startswith(_VARIABLES)]


def _packages() -> list[str]:
    names = ((distribution.metadata["Name"], distribution.version) for distribution in distributions())
    return sorted({f"{name}=={version}" for name, version in names if name and _PACKAGES.match(name)})


if __name__ == "__main__":
    main()
