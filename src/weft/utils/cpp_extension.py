"""PyTorch's builder of C++ extensions, refused when it is used: there is nothing here that C++ could be linked with."""

from __future__ import annotations

from typing import NoReturn

from weft._base.types import Arg
from weft.errors import UnsupportedCallError

CUDA_HOME: str | None = None
"""None: nothing is compiled with it."""
IS_WINDOWS = False


def _refuse(name: str) -> NoReturn:
    raise UnsupportedCallError(
        f"utils.cpp_extension.{name}: extensions in C++ are linked with PyTorch's library, which is not there; make "
        "the operator with `weft.from_jax` (a Pallas kernel, or a foreign call by jax.ffi) or `weft.library.custom_op`"
    )


def load(*args: Arg, **kwargs: Arg) -> NoReturn:
    """Refused."""
    _refuse("load")


def load_inline(*args: Arg, **kwargs: Arg) -> NoReturn:
    """Refused."""
    _refuse("load_inline")


def CppExtension(*args: Arg, **kwargs: Arg) -> NoReturn:
    """Refused."""
    _refuse("CppExtension")


def CUDAExtension(*args: Arg, **kwargs: Arg) -> NoReturn:
    """Refused."""
    _refuse("CUDAExtension")


def include_paths(*args: Arg, **kwargs: Arg) -> list[str]:
    """Refused."""
    _refuse("include_paths")


def library_paths(*args: Arg, **kwargs: Arg) -> list[str]:
    """Refused."""
    _refuse("library_paths")


class BuildExtension:
    """Refused when it is made."""

    def __init__(self, *args: Arg, **kwargs: Arg) -> None:
        _refuse("BuildExtension")

    @classmethod
    def with_options(cls, **options: Arg) -> type[BuildExtension]:
        """The class itself."""
        return cls
