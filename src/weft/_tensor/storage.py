"""What stands behind a tensor's elements, as far as programs ask: which memory, how much of it, and from where on."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from weft._base.device import device
from weft._dispatch import apply
from weft._tensor.convert import from_host
from weft._tensor.tensor import Tensor, wrap
from weft.errors import DTypeError


class UntypedStorage:
    """The memory of a tensor that is no view, in bytes. Writes give a tensor other memory: ask anew after each."""

    def __init__(self, base: Tensor) -> None:
        self._base = base

    def nbytes(self) -> int:
        """How many bytes there are."""
        return self._base.nbytes

    size = __len__ = nbytes

    def data_ptr(self) -> int:
        """The address of the first byte; waits until the elements are computed. 0 where there are none."""
        return self._base._array().unsafe_buffer_pointer() if self._base.numel() else 0

    @property
    def device(self) -> device:
        """Where it is."""
        return self._base.device

    def is_shared(self) -> bool:
        """False: other processes do not see it."""
        return False

    def __repr__(self) -> str:
        return f"[torch.storage.UntypedStorage(device={self.device}) of size {self.nbytes()}]"


def base_of(tensor: Tensor) -> Tensor:
    """The tensor that owns the elements: of a view its base, else the tensor itself."""
    return tensor if tensor._alias is None else tensor._alias.base


def offset_of(tensor: Tensor) -> int:
    """The place of the first element among those of the base. `RuntimeError` for a view of another type."""
    alias = tensor._alias
    if alias is None or all(call.op.name == "detach" for call, _ in alias.steps) or not tensor.numel():
        return 0
    base = alias.base
    if base.dtype is not tensor.dtype:
        raise DTypeError(f"a view of {base.dtype} as {tensor.dtype} has no offset here; copy it with clone()")
    places: Any = from_host(np.arange(base.numel()).reshape(base.shape), base.device)._read()
    first = reduce(lambda value, step: apply(step[0], (value, *step[1]))[0], alias.steps, places)
    return int(np.ravel(wrap(first)._host())[0])
