"""Tensors and the functions over them. Importing this package derives them from the operator table."""

from weft._base.exports import on_first_use as _on_first_use
from weft._lazy import runtime as runtime
from weft._tensor import assemble as assemble
from weft._tensor import undo as undo

__getattr__, __dir__ = _on_first_use(  # what PyTorch has in a module of this name
    __name__, {"weft._tensor.tensor": ("Tensor",), "weft._utils": ("_convert", "_rebuild_from_type_v2")}
)
