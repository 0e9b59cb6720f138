"""The LSTM on quantized tensors."""

from __future__ import annotations

from typing import Any, ClassVar

from weft.ao.nn.quantizable.modules.rnn import LSTM as ObservedLSTM
from weft.ao.quantization.quantize import convert
from weft.errors import PreconditionError, UnsupportedError


class LSTM(ObservedLSTM):
    """An LSTM on quantized tensors, with a grid for each thing that a step computes; `convert` makes it."""

    _FLOAT_MODULE: ClassVar[Any] = ObservedLSTM

    def _get_name(self) -> str:
        return "QuantizedLSTM"

    @classmethod
    def from_float(cls, other: Any, qconfig: Any = None) -> Any:
        """Raises `NotImplementedError`: grids have to be observed first."""
        del qconfig
        raise UnsupportedError(
            f"nn.quantized.{cls.__name__}.from_float: prepare() the model with the {type(other).__name__}, run it, and "
            "convert() it"
        )

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        """The quantized form of an observed layer."""
        if not isinstance(other, cls._FLOAT_MODULE):
            raise PreconditionError(f"Expected a nn.quantizable.LSTM, got {type(other).__name__}")
        result = convert(other, inplace=False)
        result.__class__ = cls
        return result
