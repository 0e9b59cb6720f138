"""Parameters and buffers, under PyTorch's import path."""

from weft.nn._lazy_parameter import UninitializedBuffer as UninitializedBuffer
from weft.nn._lazy_parameter import UninitializedParameter as UninitializedParameter
from weft.nn._lazy_parameter import UninitializedTensorMixin as UninitializedTensorMixin
from weft.nn._lazy_parameter import is_lazy as is_lazy
from weft.nn._parameter import Buffer as Buffer
from weft.nn._parameter import Parameter as Parameter
