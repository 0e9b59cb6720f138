"""What the target of a quantized model can compute with integers. There is one such target: this package."""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import UnsupportedError


@dataclass(frozen=True)
class BackendConfig:
    """The name of a target. What it can do is the table in `ao.quantization.fx.operations`."""

    name: str = "native"


def get_native_backend_config() -> BackendConfig:
    """The operators that this package computes with integers, as PyTorch's native target does."""
    return BackendConfig("native")


def get_fbgemm_backend_config() -> BackendConfig:
    """The operators that PyTorch's kernels for x86 compute with integers, which are those of the native target."""
    return BackendConfig("fbgemm")


def require_native(backend_config: object) -> None:
    """`NotImplementedError` for targets other than the native one, which is also the default, and FBGEMM's."""
    if backend_config not in (None, get_native_backend_config(), get_fbgemm_backend_config()):
        raise UnsupportedError(
            f"backend_config: models are quantized for get_native_backend_config(), but got "
            f"{backend_config!r}; leave it out"
        )
