"""Attention: the choice of implementations, biases, and scores and masks given as functions."""

from weft.backends._sdp import WARN_FOR_UNFUSED_KERNELS as WARN_FOR_UNFUSED_KERNELS
from weft.backends._sdp import SDPBackend as SDPBackend
from weft.backends._sdp import sdpa_kernel as sdpa_kernel
from weft.nn.attention import bias as bias
from weft.nn.attention import flex_attention as flex_attention
