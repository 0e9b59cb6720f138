"""Libraries of operators that are compiled for PyTorch."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

from weft.errors import ExtensionError

_PROVIDED = {
    ("torchvision", "_C"): "weft._interop.torchvision",
    ("torchvision", "_C_stable"): "weft._interop.torchvision",
    ("lib", "_torchaudio"): "weft._interop.torchaudio",
    ("lib", "libtorchaudio"): "weft._interop.torchaudio",
}
"""The modules that publish the operators of a library, by its folder and name. They stand in a higher layer."""

# no cell: what has been loaded stays
loaded_libraries: set[str] = set()
"""The paths of the libraries that were asked for, and whose operators are provided."""


def load_library(path: str | os.PathLike[str]) -> None:
    """Let the operators of a library be found, of which this package has its own.

    Any other library raises `OSError`, as one does that does not fit PyTorch, so that packages do without.
    """
    file = Path(os.fspath(path))
    module = _PROVIDED.get((file.parent.name, file.name.partition(".")[0]))
    if module is None:
        raise ExtensionError(
            f"ops.load_library: {os.fspath(path)} is compiled for PyTorch; operators of Weft are written in Python, by "
            "weft.library.custom_op"
        )
    import_module(module)
    loaded_libraries.add(str(file))
