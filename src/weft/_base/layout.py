"""Names of layouts and memory formats."""

from __future__ import annotations

from weft.errors import ArgumentError


class _NamedConstant:
    """One object per name, which prints as PyTorch's."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        if name in _instances:
            raise ArgumentError(f"cannot create '{type(self).__name__}' instances; use torch.{name}")
        _instances[name] = self
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"

    def __reduce__(self) -> tuple[object, ...]:
        return named, (self._name,)


_instances: dict[str, _NamedConstant] = {}


def named(name: str) -> _NamedConstant:
    """The layout or memory format of this name."""
    return _instances[name]


class layout(_NamedConstant):
    """The storage layout of elements; `strided` for all tensors here."""

    __slots__ = ()


class memory_format(_NamedConstant):
    """The order of dims in memory."""

    __slots__ = ()


strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
sparse_csc = layout("sparse_csc")
sparse_bsr = layout("sparse_bsr")
sparse_bsc = layout("sparse_bsc")
jagged = layout("jagged")

contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")
