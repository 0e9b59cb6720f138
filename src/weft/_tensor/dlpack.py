"""DLPack: tensors over the memory of other libraries, and the reverse (https://dmlc.github.io/dlpack).

On the CPU, NumPy makes and reads the capsules, so tensors share their elements with other libraries as they do with
arrays: whoever writes to one writes to the other. Types that NumPy has not go as integers of their width, with the code
of the type set in the capsule.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum

import jax
import jax.numpy as jnp
import numpy as np

from weft._base import dtype as dtypes
from weft._base.device import CPU, DeviceLike, canonical
from weft._base.dtype import DType
from weft._base.guards import is_a
from weft._base.layout import strided
from weft._base.types import Arg
from weft._lazy.external import writable
from weft._tensor.alias import shows_changed
from weft._tensor.codegen import op
from weft._tensor.convert import from_jax_array, resolve_device, tensor_over
from weft._tensor.kind_names import kind_of
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, DTypeError, ExportError, PreconditionError, ValueRangeError


class DLDeviceType(IntEnum):
    """The kinds of devices that capsules name."""

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLOpenCL = 4
    kDLVulkan = 7
    kDLMetal = 8
    kDLVPI = 9
    kDLROCM = 10
    kDLROCMHost = 11
    kDLExtDev = 12
    kDLCUDAManaged = 13
    kDLOneAPI = 14
    kDLWebGPU = 15
    kDLHexagon = 16
    kDLMAIA = 17


_CPU = (DLDeviceType.kDLCPU, 0)  # the device of capsules
_UNSIGNED = 1  # the code of unsigned integers
_CODES: dict[DType, int] = {
    dtypes.bfloat16: 4,
    dtypes.float8_e4m3fn: 10,
    dtypes.float8_e4m3fnuz: 11,
    dtypes.float8_e5m2: 12,
    dtypes.float8_e5m2fnuz: 13,
}
"""The codes of types that NumPy has not (`DLDataTypeCode`)."""
_BITS: dict[int, DType] = {1: dtypes.uint8, 2: dtypes.int16}
"""The types as which their elements go through NumPy, by width in bytes."""

_INVALID = (
    "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only once, so you might have "
    "already constructed a tensor from it once."
)


def exported(
    self: Tensor,
    *,
    stream: Arg = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[Arg, int] | None = None,
    copy: bool | None = None,
) -> Arg:
    """A capsule for another library; it shares the elements unless `copy`. `BufferError` where that is not possible."""
    if self.requires_grad:
        raise ExportError("Can't export tensors that require gradient, use tensor.detach()")
    if shows_changed(self):
        raise ExportError("Can't export tensors with the conjugate or negative bit set, use resolve_conj()")
    if self.dtype.is_quantized:
        raise ExportError(f"{self.dtype} types are not supported by dlpack: export x.dequantize(), or x.int_repr()")
    if self.layout is not strided:
        raise ExportError(f"Can't export tensors with layout other than torch.strided, this has {self.layout}")
    if stream is not None and not isinstance(stream, int):
        raise ArgumentError(f"stream must be int or none, got {kind_of(stream)}")
    if self.device is not CPU:
        return self._array().__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)
    if stream not in (None, -1):
        raise PreconditionError("stream should be None on cpu.")
    if dl_device is not None and dl_device[0] != DLDeviceType.kDLCPU:
        raise ExportError(f"Unsupported device_type: {int(dl_device[0])}; a tensor of the CPU is exported there")
    # NumPy refuses the types that it has not. So the bits go as integers, and the capsule is told what they are.
    code = _CODES.get(self.dtype)
    array = (self if code is None else self.view(_BITS[self.itemsize])).numpy()
    capsule = array.__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)
    if code is not None:
        _Capsule(capsule).code = code
    return capsule


def device_of_export(self: Tensor) -> tuple[Arg, int]:
    """The device of the capsule that `__dlpack__` gives."""
    return _CPU if self.device is CPU else self._array().__dlpack_device__()


def from_dlpack(ext_tensor: Arg, *, device: DeviceLike | None = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of an object that supports DLPack, or of a capsule; copied only if necessary.

    With `copy` it is always copied; with `copy=False`, a move to another `device` is refused. What is written to the
    tensor is written to the memory, and the reverse, unless the object says that it is read-only, as jax's arrays are.
    """
    result = _sharing(ext_tensor)
    if device is not None and result.device != resolve_device(device):
        if copy is False:
            raise ValueRangeError(f"cannot move the tensor from {result.device} to {device} without copying")
        return result.to(canonical(device))
    return op.clone(result) if copy else result


def to_dlpack(tensor: Tensor) -> Arg:
    """A DLPack capsule, which `from_dlpack` can consume once. Newer code passes the tensor itself."""
    return tensor.__dlpack__()


def is_capsule(x: object) -> bool:
    """Whether an object is a capsule of Python's, whose class has no public name."""
    return type(x).__name__ == "PyCapsule"


def _sharing(source: Arg) -> Tensor:
    if isinstance(source, Tensor):
        exported(source)  # raises for what cannot be shared
        return source.detach()
    if is_a(source, np.ndarray):
        return tensor_over(source)
    if isinstance(source, jax.Array):
        return from_jax_array(jnp.from_dlpack(source), owner=source)
    if not is_capsule(source):
        if not hasattr(source, "__dlpack__"):
            raise DTypeError(_INVALID)
        if tuple(source.__dlpack_device__()) != _CPU:
            return from_jax_array(jnp.from_dlpack(source), owner=source)
        try:
            source = source.__dlpack__(max_version=(1, 0))
        except TypeError:  # it has the protocol of before there were versions
            source = source.__dlpack__()
    capsule = _Capsule(source)
    if capsule.__dlpack_device__() != _CPU:
        return from_jax_array(jnp.from_dlpack(capsule), owner=source)
    dtype = next((dtype for dtype, code in _CODES.items() if code == capsule.code), None)
    if dtype is not None:
        capsule.code = _UNSIGNED
    array = np.from_dlpack(capsule)
    if not capsule.is_versioned:  # NumPy cannot know whether it may write, and the users of such capsules do
        array = writable(array)
    return tensor_over(array if dtype is None else array.view(dtype.numpy))


_TENSOR_OF_VERSIONED = 32  # bytes before the tensor in the structure of a versioned capsule
_DEVICE, _CODE = 8, 20  # byte offsets in the structure of the tensor
_NAMES = {b"dltensor": False, b"dltensor_versioned": True}  # of capsules that are not consumed yet

_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes, _is_valid.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p


class _Capsule:
    """A capsule as an object that supports DLPack. `RuntimeError` for one that has been consumed."""

    def __init__(self, capsule: Arg) -> None:
        name = next((name for name in _NAMES if _is_valid(capsule, name)), None)
        if name is None:
            raise DTypeError(_INVALID)
        self._capsule = capsule
        self.is_versioned = _NAMES[name]
        self._tensor: int = _pointer(capsule, name) + (_TENSOR_OF_VERSIONED if self.is_versioned else 0)

    @property
    def code(self) -> int:
        """The code of the type of the elements."""
        return ctypes.c_uint8.from_address(self._tensor + _CODE).value

    @code.setter
    def code(self, code: int) -> None:
        ctypes.c_uint8.from_address(self._tensor + _CODE).value = code

    def __dlpack__(self, **_: Arg) -> Arg:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = (ctypes.c_int32 * 2).from_address(self._tensor + _DEVICE)
        return kind, index
