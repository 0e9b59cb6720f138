"""Files that are added to everything that is saved."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import ClassVar

from weft._base.guards import is_mapping
from weft._base.types import AnyCallable
from weft.errors import ArgumentError, CheckpointError

ExtraFiles = Mapping[str, str | bytes]

_MEMBER = re.compile(r"extra/(?!(.*/)?\.\.?(/|$))[^/\\:\x00]+(/[^/\\:\x00]+)*", re.DOTALL)


# no cell: files are not written in a captured function
class _Hook:
    """The function that adds files."""

    function: ClassVar[AnyCallable | None] = None


def set_extra_files_hook(hook: Callable[[], ExtraFiles] | None) -> None:
    """Add the files that `hook()` returns, by name, to every archive that is written from now on; None ends this.

    This is for notes about an archive's origin, such as `{"producer_info.json": '{"user": "me"}'}`. Archives are what
    `weft.save`, `export.save` and `jit.save` write, and each item of a distributed checkpoint. The files are under
    `extra/`; `load(..., _extra_files=…)` (for `export.load`, `extra_files`) reads them.
    """
    if not (hook is None or callable(hook)):
        raise ArgumentError(f"set_extra_files_hook: expected a function without arguments, or None, got {hook!r}")
    _Hook.function = hook


def all_extra_files(own: ExtraFiles | None) -> dict[str, str | bytes]:
    """The extra files of an archive: those of the hook, and then its own, which may replace them."""
    added: object = {} if _Hook.function is None else _Hook.function()
    if not is_mapping(added):
        raise ArgumentError(f"the hook of set_extra_files_hook must return contents by name, got {added!r}")
    return {**added, **(own or {})}


def members_of_extra(files: ExtraFiles) -> dict[str, bytes]:
    """The members of an archive for extra files. `CheckpointError` names one that cannot be saved."""
    return {f"extra/{name}": _content(name, content) for name, content in files.items()}


def is_extra(member: str) -> bool:
    """Whether a member of an archive is an extra file."""
    return _MEMBER.fullmatch(member) is not None


def _content(name: object, content: object) -> bytes:
    if not isinstance(name, str) or not is_extra(f"extra/{name}"):
        raise CheckpointError(f"cannot save the extra file {name!r}: its name must be a relative path without '..'")
    if not isinstance(content, (str, bytes)):
        raise CheckpointError(
            f"cannot save the extra file {name!r}: its content must be a string or bytes, not {type(content).__name__}"
        )
    return content.encode() if isinstance(content, str) else content
