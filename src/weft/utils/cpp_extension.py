"""PyTorch's builder of C++ extensions, refused when it is used: there is nothing here that C++ could be linked with."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from weft._base.types import Arg
from weft.errors import UnsupportedCallError

CUDA_HOME: str | None = None
"""None: nothing is compiled with it."""
IS_WINDOWS = False


def _refused(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: Arg, **kwargs: Arg) -> NoReturn:
        raise UnsupportedCallError(
            f"utils.cpp_extension.{name}: extensions in C++ are linked with PyTorch's library, which is not there; "
            "make the operator with `weft.from_jax` (a Pallas kernel, or a foreign call by jax.ffi) or "
            "`weft.library.custom_op`"
        )

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Refused."
    return refuse


load = _refused("load")
load_inline = _refused("load_inline")
CppExtension = _refused("CppExtension")
CUDAExtension = _refused("CUDAExtension")
include_paths = _refused("include_paths")
library_paths = _refused("library_paths")


class BuildExtension:
    """Refused when it is made."""

    def __init__(self, *args: Arg, **kwargs: Arg) -> None:
        _refused("BuildExtension")()

    @classmethod
    def with_options(cls, **options: Arg) -> type[BuildExtension]:
        """The class itself."""
        return cls


def is_ninja_available() -> bool:
    """False: nothing is built."""
    return False


verify_ninja_availability = _refused("verify_ninja_availability")
