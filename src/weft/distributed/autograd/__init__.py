"""Automatic differentiation through remote calls."""

from weft._absent.types import DistAutogradContext as DistAutogradContext
from weft._base.exports import on_first_use as _on_first_use
from weft.distributed.autograd._context import backward as backward
from weft.distributed.autograd._context import context as context
from weft.distributed.autograd._context import get_gradients as get_gradients
from weft.distributed.autograd._context import is_available as is_available

__getattr__, __dir__ = _on_first_use(__name__, {"weft.distributed.autograd._context": ("_get_debug_info",)})
