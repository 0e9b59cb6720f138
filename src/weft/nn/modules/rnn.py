"""Recurrent networks, under PyTorch's import path."""

from weft.nn._rnn import GRU as GRU
from weft.nn._rnn import LSTM as LSTM
from weft.nn._rnn import RNN as RNN
from weft.nn._rnn import RNNBase as RNNBase
from weft.nn._rnn_cell import GRUCell as GRUCell
from weft.nn._rnn_cell import LSTMCell as LSTMCell
from weft.nn._rnn_cell import RNNCell as RNNCell
from weft.nn._rnn_cell import RNNCellBase as RNNCellBase
