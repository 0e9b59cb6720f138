"""Functions that would quantize a model, and say that they do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from weft.errors import UnsupportedCallError


class QConfig(NamedTuple):
    """How activations and weights would be observed."""

    activation: Any
    weight: Any


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise UnsupportedCallError(
            f"ao.quantization.{name}: Weft has no quantized layers; for smaller numbers use bfloat16 "
            "(module.bfloat16(), torch.autocast)"
        )

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Raises `NotImplementedError`: there are no quantized layers."
    return refuse


prepare = _refusing("prepare")
prepare_qat = _refusing("prepare_qat")
convert = _refusing("convert")
fuse_modules = _refusing("fuse_modules")
fuse_modules_qat = _refusing("fuse_modules_qat")
get_default_qconfig = _refusing("get_default_qconfig")
get_default_qat_qconfig = _refusing("get_default_qat_qconfig")
