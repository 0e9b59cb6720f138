"""`torch_xla.utils.checkpoint`: parts of a model that the backward pass computes again."""

from __future__ import annotations

from weft._base.types import AnyCallable, Arg, Result
from weft.utils import checkpoint as _checkpoint


def checkpoint(function: AnyCallable, *args: Arg, use_reentrant: bool = True, **kwargs: Arg) -> Result:
    """`weft.utils.checkpoint.checkpoint`, by default with `use_reentrant`."""
    return _checkpoint.checkpoint(function, *args, use_reentrant=use_reentrant, **kwargs)
