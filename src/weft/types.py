"""Names for types of arguments, for annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from weft._base.device import device as _device
from weft._base.dtype import DType as _DType
from weft._base.layout import layout as _Layout
from weft._base.size import Size as Size
from weft._base.types import FileLike as FileLike
from weft._symbols import SymBool as SymBool
from weft._symbols import SymFloat as SymFloat
from weft._symbols import SymInt as SymInt
from weft._tensor.storage import UntypedStorage as Storage
from weft._tensor.tensor import Tensor as Tensor

Number: TypeAlias = int | float | bool
"""Numbers of Python."""

Device: TypeAlias = _device | str | int | None
"""What names a device; None is the default one."""

IntLikeType: TypeAlias = int | SymInt
FloatLikeType: TypeAlias = float | SymFloat
BoolLikeType: TypeAlias = bool | SymBool
PySymType: TypeAlias = SymInt | SymFloat | SymBool
py_sym_types = (SymInt, SymFloat, SymBool)

_int: TypeAlias = int
_float: TypeAlias = float
_bool: TypeAlias = bool
_complex: TypeAlias = complex
_str: TypeAlias = str
_bytes: TypeAlias = bytes
_dtype: TypeAlias = _DType
_layout: TypeAlias = _Layout
_Number = (int, float, bool)
_size: TypeAlias = Size | list[int] | tuple[int, ...]
_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
_TensorOrOptionalTensors: TypeAlias = Tensor | Sequence[Tensor | None]

__all__ = ["Device", "FileLike", "Number", "Storage"]
