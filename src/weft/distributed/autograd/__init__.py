"""Automatic differentiation through remote calls."""

from weft.distributed.autograd._context import backward as backward
from weft.distributed.autograd._context import context as context
from weft.distributed.autograd._context import debug_info as _get_debug_info
from weft.distributed.autograd._context import get_gradients as get_gradients
from weft.distributed.autograd._context import is_available as is_available

__all__ = ["_get_debug_info", "backward", "context", "get_gradients", "is_available"]
