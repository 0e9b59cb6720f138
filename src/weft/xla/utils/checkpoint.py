"""`torch_xla.utils.checkpoint`: parts of a model that the backward pass computes again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.utils import checkpoint as _checkpoint


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool = True, **kwargs: Any) -> Any:
    """`weft.utils.checkpoint.checkpoint`, by default with `use_reentrant`."""
    return _checkpoint.checkpoint(function, *args, use_reentrant=use_reentrant, **kwargs)
