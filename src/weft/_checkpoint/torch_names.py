"""Names in PyTorch's pickles: of its functions, of its classes of storages, and of what both packages have."""

from __future__ import annotations

from pickletools import TAKEN_FROM_ARGUMENT1, TAKEN_FROM_ARGUMENT4, TAKEN_FROM_ARGUMENT4U, UP_TO_NEWLINE, opcodes

from weft._base.dtype import DTYPES, QUANTIZED, DType
from weft._base.own_names import own_paths
from weft._base.types import AnyCallable
from weft._import_paths.homes import home_in_torch
from weft.ops._type_names import scalar_name


class TorchGlobal:
    """Stands for a function or class that PyTorch has and this package has not: it is only named in pickles.

    `itemsize` is the size of an element in bytes, for classes of storages.
    """

    def __init__(self, module: str, name: str, itemsize: int = 1) -> None:
        self.path = module, name
        self.full_name = f"{module}.{name}"
        self.itemsize = itemsize
        self.__module__ = __name__
        _globals[name] = self

    def __call__(self, *_: object) -> None:  # which pickle demands of what it names to be called
        raise NotImplementedError(f"{self.full_name} is only named in pickles")

    def __reduce__(self) -> str:
        return self.path[1]


# no cell: filled when the library is imported
_globals: dict[str, TorchGlobal] = {}


def __getattr__(name: str) -> TorchGlobal:  # by which Python's pickle finds them
    try:
        return _globals[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


GET_LAYOUT = TorchGlobal("torch.serialization", "_get_layout")
FROM_CPU = TorchGlobal("torch._utils", "_rebuild_device_tensor_from_cpu_tensor")
FROM_TYPE = TorchGlobal("torch._tensor", "_rebuild_from_type_v2")
META_TENSOR = TorchGlobal("torch._utils", "_rebuild_meta_tensor_no_storage")
NESTED_TENSOR = TorchGlobal("torch._utils", "_rebuild_nested_tensor")
JAGGED_TENSOR = TorchGlobal("torch.nested._internal.nested_tensor", "_rebuild_njt")
PARAMETER = TorchGlobal("torch._utils", "_rebuild_parameter")
PARAMETER_WITH_STATE = TorchGlobal("torch._utils", "_rebuild_parameter_with_state")
QUANTIZED_TENSOR = TorchGlobal("torch._utils", "_rebuild_qtensor")
SPARSE_TENSOR = TorchGlobal("torch._utils", "_rebuild_sparse_tensor")
TYPED_TENSOR = TorchGlobal("torch._utils", "_rebuild_tensor_v2")
UNTYPED_TENSOR = TorchGlobal("torch._utils", "_rebuild_tensor_v3")
WRAPPER_TENSOR = TorchGlobal("torch._utils", "_rebuild_wrapper_subclass")

UNTYPED = TorchGlobal("torch.storage", "UntypedStorage")
_TYPED = (
    *("Bool", "Byte", "Char", "Short", "Int", "Long", "Half", "BFloat16", "Float", "Double"),
    *("ComplexFloat", "ComplexDouble", "QInt8", "QUInt8", "QInt32"),
)
STORAGES: dict[DType | None, TorchGlobal] = {
    dtype: TorchGlobal("torch", f"{scalar_name(dtype)}Storage", dtype.itemsize)
    if scalar_name(dtype) in _TYPED
    else UNTYPED
    for dtype in (*DTYPES, *QUANTIZED)
} | {None: UNTYPED}
"""The classes of storages by the types of elements; newer types have none of their own, nor have bytes (None)."""


# --- replacing names in a pickle --------------------------------------------------------------------------------


def name_in_torch(module: str, name: str) -> tuple[str, str]:
    """The module and name by which PyTorch knows what has these here; others as they are."""
    if module == __name__:
        return _globals[name].path
    return home_in_torch(module, name)


def full_names(entry: AnyCallable) -> set[str]:
    """The names under which files may have a class or function: that of PyTorch, and its own here."""
    path = entry.__module__, entry.__qualname__
    own = own_paths.get(path, path)
    return {".".join(name) for name in (path, own, name_in_torch(*own))}


_LENGTHS = {TAKEN_FROM_ARGUMENT1: 1, TAKEN_FROM_ARGUMENT4: 4, TAKEN_FROM_ARGUMENT4U: 4}  # bytes of the length
_SIZES = {ord(opcode.code): 0 if opcode.arg is None else opcode.arg.n for opcode in opcodes}
_GLOBAL = ord("c")


def renamed(content: bytes) -> bytes:
    """A pickle of a protocol before 4 with PyTorch's names in place of this package's.

    The opcodes are gone through one by one, since bytes that look like a name may be part of a string.
    """
    parts: list[bytes] = []
    at = kept = 0
    while at < len(content):
        code = content[at]
        size = _SIZES[code]
        at += 1
        if code == _GLOBAL:
            middle = content.index(b"\n", at)
            end = content.index(b"\n", middle + 1)
            module, name = content[at:middle].decode(), content[middle + 1 : end].decode()
            parts += [content[kept:at], "{}\n{}".format(*name_in_torch(module, name)).encode()]
            at = kept = end
            at += 1
        elif size >= 0:
            at += size
        elif size == UP_TO_NEWLINE:
            at = content.index(b"\n", at) + 1
            if code == ord("i"):  # INST, which has a module and a name like GLOBAL; no pickler of Python 3 writes it
                at = content.index(b"\n", at) + 1
        else:
            width = _LENGTHS[size]
            at += width + int.from_bytes(content[at : at + width], "little")
    parts.append(content[kept:])
    return b"".join(parts)
