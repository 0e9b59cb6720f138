"""Refuses to build this distribution where its installation would replace PyTorch: an installer would not ask.

hatchling calls `get_build_hook`. pip builds by the Python of the environment in which it installs, so the folders of
that environment can be looked into. Others build elsewhere (uv, `python -m build`): there, nothing is found.
"""

from __future__ import annotations

import site
import sys
import sysconfig
from importlib import import_module, metadata
from typing import Any

_TEXT = """\
PyTorch {found} is installed in {folder}.
torch {own}, which is Weft, does not replace it.
- To have both, run programs by `weft script.py`: that does not need this distribution.
- To have Weft alone, install into an environment without PyTorch, or uninstall it before: pip uninstall torch"""


def get_build_hook() -> type:
    """What hatchling asks this file for, which is only installed where it builds."""
    interface: Any = import_module("hatchling.builders.hooks.plugin.interface").BuildHookInterface

    class Refusal(interface):
        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            for found in metadata.distributions(name="torch", path=folders()):
                if "+weft" not in found.version:
                    raise SystemExit(
                        _TEXT.format(found=found.version, folder=found.locate_file(""), own=self.metadata.version)
                    )

    return Refusal


def folders() -> list[str]:
    """Where this environment has its packages; those of the user belong to it, unless it is a virtual one."""
    of_user = [site.getusersitepackages()] if sys.prefix == sys.base_prefix else []
    return [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *of_user]
