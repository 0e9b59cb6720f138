"""Names of layouts, memory formats and quantization schemes."""

from __future__ import annotations

from weft.errors import ArgumentError


class NamedConstant:
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


# no cell: filled when the library is imported
_instances: dict[str, NamedConstant] = {}


def named(name: str) -> NamedConstant:
    """The layout or memory format of this name."""
    return _instances[name]


class layout(NamedConstant):
    """The storage layout of elements; `strided` for all tensors here."""

    __slots__ = ()


class memory_format(NamedConstant):
    """The order of dims in memory."""

    __slots__ = ()


class qscheme(NamedConstant):
    """How the elements of a quantized tensor, integers, stand for numbers."""

    __slots__ = ()


strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
sparse_csc = layout("sparse_csc")
sparse_bsr = layout("sparse_bsr")
sparse_bsc = layout("sparse_bsc")
jagged = layout("jagged")
quantized = layout("quantized")  # not PyTorch's name: users see `strided`

contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")

per_tensor_affine = qscheme("per_tensor_affine")
per_channel_affine = qscheme("per_channel_affine")
per_tensor_symmetric = qscheme("per_tensor_symmetric")
per_channel_symmetric = qscheme("per_channel_symmetric")
per_channel_affine_float_qparams = qscheme("per_channel_affine_float_qparams")

SCHEMES = (
    per_tensor_affine,
    per_channel_affine,
    per_tensor_symmetric,
    per_channel_symmetric,
    per_channel_affine_float_qparams,
)

FORMATS = (contiguous_format, preserve_format, channels_last, channels_last_3d)
