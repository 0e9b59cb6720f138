"""CUDA: whether it is available, and the precision of matrix products."""

from __future__ import annotations

from weft import _switches
from weft.cuda import is_available


def is_built() -> bool:
    """Whether jax was installed with CUDA and finds a device for it."""
    return is_available()


class _Matmul:
    """The precision of float32 products, as the older switch."""

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 products may be computed in TF32: see `set_float32_matmul_precision`."""
        return _switches.get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        _switches.set_float32_matmul_precision("high" if allowed else "highest")


matmul = _Matmul()
