"""The LSTM on quantized tensors."""

from __future__ import annotations

from typing import Any, ClassVar

from weft.ao.nn.quantizable.modules.rnn import LSTM as ObservedLSTM
from weft.ao.nn.quantized.modules._observed import FromObserved


class LSTM(FromObserved, ObservedLSTM):
    """An LSTM on quantized tensors, with a grid for each thing that a step computes; `convert` makes it."""

    _FLOAT_MODULE: ClassVar[Any] = ObservedLSTM
