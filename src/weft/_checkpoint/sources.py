"""The source code of modules in files of the older format, which is compared with today's when they are loaded."""

from __future__ import annotations

import difflib
import inspect
from pathlib import Path

from weft._base.own_names import is_own_module
from weft._base.site import warn_user
from weft._tensor.composite.query import typename
from weft.errors import CheckpointError


class SourceChangeWarning(Warning):
    """The code of a module's class is not that with which the module was saved."""


def source_of(kind: type) -> tuple[str | None, str | None]:
    """The path of the file that defines a class, and the source of the class; Nones for classes of this package.

    These would differ from PyTorch's in any case. A warning says if the source is not found.
    """
    if is_own_module(kind.__module__):
        return None, None
    try:
        return inspect.getsourcefile(kind), inspect.getsource(kind)
    except (OSError, TypeError):
        warn_user(
            f"Couldn't retrieve source code for container of type {kind.__name__}. It won't be checked for correctness "
            "upon loading."
        )
        return None, None


def check_source(kind: type, path: object, saved: object) -> None:
    """Warn if a class has another source than it had when it was saved.

    If its attribute `dump_patches` is true, the difference is written to `<its name>.patch` in the current folder.
    """
    if not (isinstance(path, str) and isinstance(saved, str) and path and saved) or is_own_module(kind.__module__):
        return
    _, current = source_of(kind)
    if current is None or current == saved:
        return
    how = (
        _dumped(kind.__name__, path, current, saved)
        if getattr(kind, "dump_patches", False)
        else "you can retrieve the original source code by accessing the object's source attribute or set "
        "`torch.nn.Module.dump_patches = True` and use the patch tool to revert the changes."
    )
    warn_user(f"source code of class '{typename(kind)}' has changed. {how}", SourceChangeWarning)


def _dumped(name: str, path: str, current: str, saved: str) -> str:
    """What was done about the difference between two sources: it is written to a file, unless that has another one."""
    lines = "\n".join(difflib.unified_diff(current.split("\n"), saved.split("\n"), path, path, lineterm=""))
    target = Path(f"{name}.patch")
    try:
        if target.exists() and target.read_text(encoding="utf-8") not in ("", lines):
            raise CheckpointError(f"{target} holds something else")
        target.write_text(lines, encoding="utf-8")
    except (OSError, UnicodeDecodeError, CheckpointError):
        return (
            f"Tried to save a patch, but couldn't create a writable file {target}. Make sure it doesn't exist and your "
            "working directory is writable."
        )
    return f"Saved a reverse patch to {target}. Run `patch -p0 < {target}` to revert your changes."
