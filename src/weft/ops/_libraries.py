"""Libraries of operators that are compiled for PyTorch."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from weft.errors import ExtensionError


def load_library(path: str | os.PathLike[str]) -> None:
    """Accept a library of operators that is compiled for PyTorch, and go on without it.

    Packages such as torchaudio load theirs when they are imported, and most of what they have needs no operator of it.
    So the library is not loaded, and no error is raised: an operator that Weft has under the same name is used instead
    (torchvision's), and any other is reported missing where it is called. `OSError` if there is no such file.
    """
    if not Path(path).is_file():
        raise ExtensionError(f"ops.load_library: there is no file {os.fspath(path)}")
    if "torchvision" in Path(path).parts:  # which asks for its operators at once, and does without if this fails
        raise ExtensionError(f"ops.load_library: {os.fspath(path)} is compiled for PyTorch")
    logging.getLogger(__name__).debug(
        "%s is compiled for PyTorch and is not loaded; only operators that Weft has can be called", path
    )
