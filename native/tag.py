"""A hook of the wheel's build: its name says which systems the library is for."""

import re
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_LIBSTDCXX = {17: 19, 24: 22, 27: 24, 31: 28, 34: 29, 35: 30, 39: 33}
"""Systems with glibc 2.x have at least libstdc++ 3.4.y: x and y, by the policies of manylinux."""


class Tag(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        library = Path(self.root, "weft_native", "libweft_native.so")
        if not library.exists():
            raise FileNotFoundError(f"{library} is not built; run `make native`, or tools/native.py")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_system(library.read_bytes())}"


def _system(library: bytes) -> str:
    """The oldest manylinux that has all versions of symbols that the library asks for; else this system."""
    glibc, libstdcxx = (_newest(library, name) for name in (rb"GLIBC_2", rb"GLIBCXX_3\.4"))
    enough = [x for x, y in _LIBSTDCXX.items() if x >= glibc and y >= libstdcxx]
    here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return here.replace("linux", f"manylinux_2_{min(enough)}", 1) if enough else here


def _newest(library: bytes, name: bytes) -> int:
    return max((int(y) for y in re.findall(name + rb"\.(\d+)", library)), default=0)
