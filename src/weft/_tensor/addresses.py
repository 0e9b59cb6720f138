"""The memory of storages, and the addresses of their first bytes."""

from __future__ import annotations

from weft._tensor.base import TensorBase
from weft._tensor.memory import Memory
from weft._tensor.view import external_memory_of


def memory_of(owner: TensorBase) -> Memory:
    """The memory of a tensor that owns its storage. What is there, `Tensor.data_ptr` says."""
    size = max(owner._read().aval.nbytes, 1)
    if owner._address is None or size > len(owner._address):
        owner._address = Memory(size)
    return owner._address


def start_of(owner: TensorBase) -> int:
    """The address of the first byte of a storage: where others write to it, or where `memory_of` shows it."""
    external = external_memory_of(owner)
    return memory_of(owner).start if external is None else external.address
