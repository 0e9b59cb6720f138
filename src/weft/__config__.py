"""What this installation is made of, as text."""

from __future__ import annotations

import os
from importlib.metadata import version

from weft._base.device import CPU
from weft._lazy.runtime import tier_of
from weft._switches import get_num_interop_threads, get_num_threads
from weft.backends.cpu import get_cpu_capability
from weft.ops._kernels.library import status
from weft.version import __version__, weft

_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "XLA_FLAGS")


def show() -> str:
    """The versions of Weft, jax and NumPy, the CPU's instructions that are used, and whether native kernels are."""
    packages = [f"  - {name} {version(name)}" for name in ("jax", "jaxlib", "numpy", "scipy")]
    title = f"Weft {weft}, which follows PyTorch {__version__}, with:"
    kernels = "not used, since this process interprets all values" if tier_of(CPU) == "interpreted" else status()
    used = [f"  - CPU capability usage: {get_cpu_capability()}", f"  - native kernels: {kernels}"]
    return "\n".join([title, *packages, *used, ""])


def parallel_info() -> str:
    """The numbers of threads, and the variables of the environment that change them."""
    variables = [f"\t{name} : {os.environ.get(name, '[not set]')}" for name in _VARIABLES]
    return "\n".join(
        [
            "XLA's pool of threads:",
            f"\tget_num_threads() : {get_num_threads()}",
            f"\tget_num_interop_threads() : {get_num_interop_threads()}",
            f"\tos.cpu_count() : {os.cpu_count()}",
            "Environment variables:",
            *variables,
            "",
        ]
    )
