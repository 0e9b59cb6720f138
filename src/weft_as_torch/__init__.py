"""How `torch` becomes another name of Weft in each Python process below one in which it is.

`weft_as_torch.pth`, which is installed beside this package, calls `install_if_inherited` when such a process starts.
So children of all kinds are reached before they import anything: launched, spawned, forked and executed. Many of them
never import `torch` (a resource tracker, a tool), so nothing of Weft is imported before that.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

TYPE_CHECKING = False  # the module `typing` takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from importlib.machinery import ModuleSpec
    from importlib.metadata import Distribution
    from types import ModuleType
    from typing import Any

OFF, ON = ("0", "false", "off", "no"), ("1", "true", "on", "yes")
"""What turns a switch of the environment off and on, in any case."""

ENVIRONMENT = "WEFT_AS_TORCH"
"""Set to 1 where `torch` is Weft, so that processes that are started from there do the same."""
PACKAGES = {"torch": "weft", "torch_xla": "weft_xla", "functorch": "weft.functorch"}
_ALIAS = "weft._base.torch_alias"


class Finder:
    """A finder of `sys.meta_path` for PyTorch's modules and distributions, which are Weft's."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        return import_module(_ALIAS).spec_of(fullname, path)

    def find_distributions(self, context: Any = None) -> Iterable[Distribution]:
        """PyTorch's distributions, or the one that is asked for."""
        return import_module(_ALIAS).distributions(context)


_seen: list[bool] = []


def install_if_inherited() -> None:
    """Let `torch` be Weft in this process if it is in the one that has started this one.

    An exception would be shown as a traceback of Python's own start, which goes on nevertheless. So a value that is
    neither on nor off is a sentence on stderr.
    """
    if _seen:  # in a virtual environment, Python's `site` reads its files twice
        return
    _seen.append(True)
    value = os.environ.get(ENVIRONMENT, "")
    if value.lower() in ON:
        sys.meta_path.insert(0, Finder())
    elif value and value.lower() not in OFF and sys.stderr is not None:
        sys.stderr.write(f"{ENVIRONMENT}={value}: expected one of {', '.join((*ON, *OFF))}; torch is not Weft here\n")
