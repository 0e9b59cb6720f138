"""How PyTorch computes `x[index]` and `x[index] = value` by operators (`decompositions.py`)."""

from __future__ import annotations

from weft._base.dtype import bool_, uint8
from weft._base.types import Arg
from weft._interop.aten.decompositions import decomposes
from weft._tensor.convert import tensor
from weft._tensor.tensor import Tensor
from weft.ops._aten import aten

# --- indexing -----------------------------------------------------------------------------------------------------


@decomposes("__getitem__")
def getitem(input: Tensor, index: Arg) -> Tensor:
    view, places = _sliced(input, index)
    return aten.index(view, places) if places else aten.alias(view) if view is input else view


@decomposes("__setitem__")
def setitem(input: Tensor, index: Arg, value: Arg) -> None:
    view, places = _sliced(input, index)
    if places:
        value = value if isinstance(value, Tensor) else tensor(value, dtype=input.dtype, device=input.device)
        aten.index_put_(view, places, value)
    elif isinstance(value, Tensor):
        aten.copy_(view, value)
    else:
        aten.fill_(view, value)


def _sliced(input: Tensor, index: Arg) -> tuple[Tensor, list[Tensor | None]]:
    """The part of a tensor that numbers, slices and new dims of an index take, and the tensors that index it then."""
    parts = list(index) if isinstance(index, tuple) else [index]
    count = sum(part.ndim if _is_mask(part) else part is not None and part is not ... for part in parts)
    if not any(part is ... for part in parts):
        parts.append(...)
    at = next(at for at, part in enumerate(parts) if part is ...)
    parts[at : at + 1] = [slice(None)] * (input.ndim - count)
    # As PyTorch does, views are taken first, one for each part; `dim` is where the next part stands in the view.
    view, dim = input, 0
    places: list[Tensor | None] = []
    for part in parts:
        if part is None or isinstance(part, bool):
            view = aten.unsqueeze(view, dim)
            if part is not None:
                places += [None] * (dim - len(places)) + [tensor(part)]
            dim += 1
        elif isinstance(part, int):
            view = aten.select(view, dim, part)
        elif isinstance(part, slice):
            if part != slice(None):
                view = aten.slice(view, dim, part.start, part.stop, 1 if part.step is None else part.step)
            dim += 1
        else:
            part = part if isinstance(part, Tensor) else tensor(part, device=input.device)
            if part.ndim == 0 and part.dtype is not bool_ and part.dtype is not uint8:
                view = aten.select(view, dim, int(part))
                continue
            places += [None] * (dim - len(places)) + [part]
            dim += part.ndim if _is_mask(part) else 1
    return view, places


def _is_mask(part: Arg) -> bool:
    return isinstance(part, Tensor) and part.dtype in (bool_, uint8)
