"""How quantized layers are computed: XLA computes all of them. The engine is stored, as a default of `QConfig`s."""

from __future__ import annotations

import sys
from types import ModuleType

from weft.errors import SettingError

engine = "x86"
supported_engines = ["qnnpack", "onednn", "x86", "fbgemm"]


class _Switches(ModuleType):
    """The module, whose engine is one of the supported ones: the others' defaults would be taken without a word."""

    def __setattr__(self, name: str, value: object) -> None:
        """Set a variable; `RuntimeError` for an engine that there is not, and for the list of engines."""
        if name == "engine" and value not in supported_engines:
            raise SettingError(
                f"{value} is not a valid value for quantized engine; use one of {', '.join(supported_engines)}"
            )
        if name == "supported_engines":
            raise SettingError("Assignment not supported: supported_engines says which engines there are")
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Switches
