"""Layers made of parts that can be observed."""

from weft._base.exports import on_first_use as _on_first_use

__getattr__, __dir__ = _on_first_use(
    __name__,
    {
        "weft.ao.nn.quantizable.modules.activation": ("MultiheadAttention",),
        "weft.ao.nn.quantizable.modules.rnn": ("LSTM", "LSTMCell"),
    },
    (),
)
