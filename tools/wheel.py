"""What the build of a wheel adds: the extension `weft._native`, and type stubs of the modules that have no file.

hatchling calls `get_build_hook`. Where the extension cannot be built, the wheel is one of pure Python, which works as
well, and a warning says why. An editable installation has the extension in the source folder, and no stubs.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import native  # beside this file
import path_stubs

_STUBS = native.ROOT / "build" / "stubs"
_LIBSTDCXX = {17: 19, 24: 22, 27: 24, 31: 28, 34: 29, 35: 30, 39: 33}
"""Systems with glibc 2.x have at least libstdc++ 3.4.y: x and y, by the policies of manylinux."""


def get_build_hook() -> type:
    """What hatchling asks this file for, which is only installed where it builds."""
    interface: Any = import_module("hatchling.builders.hooks.plugin.interface").BuildHookInterface

    class Additions(interface):
        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            reason = native.build()
            if reason is not None:
                self.app.display_warning(f"without the extension, all runs in Python, and more slowly: {reason}")
            if version == "editable":
                return
            if reason is None:
                build_data["pure_python"] = False
                build_data["tag"] = tag_of(native.EXTENSION)
                build_data["force_include"][str(native.EXTENSION)] = f"weft/{native.EXTENSION.name}"
            for name, text in path_stubs.stubs().items():
                file = _STUBS / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
                build_data["force_include"][str(file)] = f"weft/{name}"

    return Additions


def tag_of(extension: Path) -> str:
    """The wheel's tag: this Python, and the oldest manylinux that has what the extension asks for, or this system."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    library = extension.read_bytes()
    glibc, libstdcxx = (_newest(library, name) for name in (rb"GLIBC_2", rb"GLIBCXX_3\.4"))
    enough = [x for x, y in _LIBSTDCXX.items() if x >= glibc and y >= libstdcxx]
    here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    system = here.replace("linux", f"manylinux_2_{min(enough)}", 1) if enough else here
    return f"{python}-{python}-{system}"


def _newest(library: bytes, name: bytes) -> int:
    return max((int(y) for y in re.findall(name + rb"\.(\d+)", library)), default=0)
