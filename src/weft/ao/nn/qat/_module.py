"""What layers for quantization-aware training have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.errors import PreconditionError
from weft.nn._module import Module
from weft.nn.utils.parametrize import type_before_parametrizations

if TYPE_CHECKING:
    from weft.ao._observing.qconfig import QConfigAny


class FakeQuantized(Module):
    """Mixed in before a float layer: `weight_fake_quant` rounds its weight."""

    weight_fake_quant: Any
    _fuses_relu = False

    def _set_fake_quant(self, qconfig: QConfigAny) -> None:
        if not qconfig:
            raise PreconditionError(f"{type(self).__name__}: qconfig must be provided for QAT module")
        self.qconfig = qconfig
        self.weight_fake_quant = qconfig.weight()


def require_qconfig(mod: Module, allowed: tuple[type, ...], target: type) -> QConfigAny:
    """The `qconfig` of a float module; `AssertionError` for a module of another type, or without one."""
    kind = type_before_parametrizations(mod)
    if kind not in allowed:
        names = " or ".join(sorted({each.__name__ for each in allowed}))
        raise PreconditionError(f"qat.{target.__name__}.from_float only works for {names}, but got {kind.__name__}")
    if not getattr(mod, "qconfig", None):
        raise PreconditionError(f"Input float module {kind.__name__} must have a valid qconfig")
    return mod.qconfig
