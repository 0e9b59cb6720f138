"""CUDA: whether it is available, the precision of matrix products, and which libraries are used.

XLA chooses libraries and algorithms when it compiles a program. So of the switches, only `matmul.allow_tf32` and
`matmul.fp32_precision` have an effect; all others are stored, and read as they were set.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from weft import _switches
from weft._base.cell import Cell
from weft._tensor.tensor import Tensor
from weft.backends import _sdp
from weft.backends._sdp import SDPBackend as SDPBackend
from weft.backends._sdp import allow_fp16_bf16_reduction_math_sdp as allow_fp16_bf16_reduction_math_sdp
from weft.backends._sdp import fp16_bf16_reduction_math_sdp_allowed as fp16_bf16_reduction_math_sdp_allowed
from weft.backends._sdp import sdpa_kernel
from weft.cuda import current_device, device_count, is_available
from weft.errors import OptionError, SettingError, ValueRangeError


def is_built() -> bool:
    """Whether jax was installed with CUDA and finds a device for it."""
    return is_available()


# --- matrix products --------------------------------------------------------------------------------------------


@dataclass
class _Matmul:
    """How matrix products may be computed. XLA adds up 16-bit products in float32, whatever is allowed."""

    allow_fp16_reduced_precision_reduction: bool = True
    allow_bf16_reduced_precision_reduction: bool = True
    allow_fp16_accumulation: bool = False

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 products may be computed in TF32: see `set_float32_matmul_precision`."""
        return _switches.get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        _switches.set_float32_matmul_precision("high" if allowed else "highest")

    @property
    def fp32_precision(self) -> str:
        """`allow_tf32` as a text: "tf32" or "ieee"."""
        return "tf32" if self.allow_tf32 else "ieee"

    @fp32_precision.setter
    def fp32_precision(self, precision: str) -> None:
        if precision not in ("tf32", "ieee", "none"):
            raise SettingError(f"fp32_precision must be 'ieee', 'tf32' or 'none', got {precision!r}")
        self.allow_tf32 = precision == "tf32"


# no cell: its flags that have an effect stand in a cell; the others are only stored
matmul = _Matmul()


# --- libraries --------------------------------------------------------------------------------------------------


_LINALG = Cell("the preferred library of linalg", "default")
_BLAS = Cell("the preferred library of matrix products", "default")


def _checked(function: str, name: str | None, choices: tuple[str, ...], current: str) -> str:
    if name is not None and name not in choices:
        raise OptionError(f"{function}: Unknown input value. Choose from: {', '.join(choices)}; got {name!r}")
    return current if name is None else name


def preferred_linalg_library(backend: str | None = None) -> str:
    """The preferred library of `linalg`, after it was set to `backend`; `RuntimeError` for an unknown one."""
    choices = ("default", "cusolver", "magma")
    _LINALG.set(_checked("preferred_linalg_library", backend, choices, _LINALG.get()))
    return _LINALG.get()


def preferred_blas_library(backend: str | None = None) -> str:
    """The preferred library of matrix products, after it was set to `backend`; `RuntimeError` for an unknown one."""
    choices = ("default", "cublas", "hipblas", "cublaslt", "hipblaslt", "ck")
    _BLAS.set(_checked("preferred_blas_library", backend, choices, _BLAS.get()))
    return _BLAS.get()


@dataclass
class _PlanCache:
    """A device's plans of Fourier transforms, which XLA keeps in its programs: none are counted here."""

    max_size: int = 4096
    size: int = 0

    def clear(self) -> None:
        """Does nothing."""


class _PlanCaches:
    """The cache of each device; attributes are those of the current device's cache."""

    def __init__(self) -> None:
        self._caches: dict[int, _PlanCache] = {}

    def __getitem__(self, device: int) -> _PlanCache:
        if not 0 <= device < device_count():
            raise OptionError(
                f"cufft_plan_cache: expected 0 <= device index < {device_count()}, but got device with index {device}"
            )
        return self._caches.setdefault(device, _PlanCache())

    @property
    def size(self) -> int:
        """The number of plans: 0."""
        return self[current_device()].size

    @property
    def max_size(self) -> int:
        """The largest number of plans, as it was set."""
        return self[current_device()].max_size

    @max_size.setter
    def max_size(self, size: int) -> None:
        if size < 0:
            raise ValueRangeError(f"cufft_plan_cache: max_size must be non-negative, got {size}")
        self[current_device()].max_size = size

    def clear(self) -> None:
        """Does nothing."""
        self[current_device()].clear()


# no cell: sizes of caches that do not exist here
cufft_plan_cache = _PlanCaches()


# --- attention --------------------------------------------------------------------------------------------------


def _switch(name: str, backend: SDPBackend) -> tuple[Callable[[bool], None], Callable[[], bool]]:
    def enable(enabled: bool) -> None:
        _sdp.enable(backend, enabled)

    def is_enabled() -> bool:
        return _sdp.is_enabled(backend)

    choice = "the choice of implementations of attention"
    enable.__name__ = enable.__qualname__ = f"enable_{name}_sdp"
    enable.__doc__ = f"Add `SDPBackend.{backend.name}` to {choice}, or take it out."
    is_enabled.__name__ = is_enabled.__qualname__ = f"{name}_sdp_enabled"
    is_enabled.__doc__ = f"Whether `SDPBackend.{backend.name}` is in {choice}."
    return enable, is_enabled


enable_flash_sdp, flash_sdp_enabled = _switch("flash", SDPBackend.FLASH_ATTENTION)
enable_mem_efficient_sdp, mem_efficient_sdp_enabled = _switch("mem_efficient", SDPBackend.EFFICIENT_ATTENTION)
enable_math_sdp, math_sdp_enabled = _switch("math", SDPBackend.MATH)
enable_cudnn_sdp, cudnn_sdp_enabled = _switch("cudnn", SDPBackend.CUDNN_ATTENTION)


def is_flash_attention_available() -> bool:
    """False: attention is one operator that XLA fuses."""
    return False


def sdp_kernel(
    enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True
) -> AbstractContextManager[dict[str, object]]:
    """The older form of `nn.attention.sdpa_kernel`."""
    warnings.warn(
        "`torch.backends.cuda.sdp_kernel()` is deprecated. In the future, this context manager will be removed. Please "
        "see `torch.nn.attention.sdpa_kernel()` for the new context manager, with updated signature.",
        FutureWarning,
        stacklevel=2,
    )
    chosen = {
        SDPBackend.FLASH_ATTENTION: enable_flash,
        SDPBackend.EFFICIENT_ATTENTION: enable_mem_efficient,
        SDPBackend.MATH: enable_math,
        SDPBackend.CUDNN_ATTENTION: enable_cudnn,
    }
    return sdpa_kernel([backend for backend, is_on in chosen.items() if is_on])


@dataclass
class SDPAParams:
    """The arguments of an attention, for the questions below."""

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None
    dropout: float
    is_causal: bool
    enable_gqa: bool = False


def can_use_flash_attention(params: SDPAParams, debug: bool = False) -> bool:
    """False: there is one implementation, which XLA fuses."""
    return False


def can_use_efficient_attention(params: SDPAParams, debug: bool = False) -> bool:
    """False: there is one implementation, which XLA fuses."""
    return False


def can_use_cudnn_attention(params: SDPAParams, debug: bool = False) -> bool:
    """False: there is one implementation, which XLA fuses."""
    return False


def is_ck_sdpa_available() -> bool:
    """False: there is one implementation, which XLA fuses."""
    return False
