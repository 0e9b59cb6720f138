"""What quantized layers have in common whose observed forms are made of parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from weft.ao.quantization.quantize import convert
from weft.errors import PreconditionError, UnsupportedError
from weft.nn._lookup import AnyModule

if TYPE_CHECKING:
    from weft.ao._observing.qconfig import QConfigAny
    from weft.nn._module import Module


class FromObserved:
    """Mixed into the quantized form of an observed layer, `_FLOAT_MODULE`, whose parts `convert` quantizes."""

    _FLOAT_MODULE: ClassVar[Any]

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    @classmethod
    def from_float(cls, other: Module, qconfig: QConfigAny = None) -> NoReturn:
        """Raises `NotImplementedError`: grids have to be observed first."""
        del qconfig
        raise UnsupportedError(
            f"nn.quantized.{cls.__name__}.from_float: prepare() the model with the {type(other).__name__}, run it, and "
            "convert() it"
        )

    @classmethod
    def from_observed(cls, other: Module) -> Module:
        """The quantized form of an observed layer; `AssertionError` for any other module."""
        if not isinstance(other, cls._FLOAT_MODULE):
            raise PreconditionError(f"Expected a nn.quantizable.{cls.__name__}, got {type(other).__name__}")
        result: AnyModule = convert(other, inplace=False)
        result.__class__ = cls
        return result
