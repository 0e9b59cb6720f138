"""Storages: the memory of tensors, as bytes and as elements of one type."""

from weft._tensor.storage import TypedStorage as TypedStorage
from weft._tensor.storage import UntypedStorage as UntypedStorage
