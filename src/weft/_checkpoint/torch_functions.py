"""What the functions build that PyTorch's pickles name for tensors and parameters, besides those on storages."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from math import prod
from typing import TypeGuard

from weft._base.device import device
from weft._base.dtype import DType
from weft._base.guards import is_plain_dict, is_plain_tuple
from weft._base.layout import named
from weft._base.size import Size
from weft._base.types import AnyCallable
from weft._checkpoint.buffers import without_data
from weft._checkpoint.keys import Unpickled
from weft._checkpoint.pickled import Global, short_repr
from weft._checkpoint.storages import MOST_DIMS, MOST_SIZE
from weft._checkpoint.torch_layouts import (
    by_coordinates,
    layout_named,
    rebuilt_jagged,
    rebuilt_nested,
    rebuilt_sparse,
)
from weft._checkpoint.torch_names import (
    FROM_TYPE,
    GET_LAYOUT,
    JAGGED_TENSOR,
    META_TENSOR,
    NESTED_TENSOR,
    PARAMETER,
    PARAMETER_WITH_STATE,
    SPARSE_TENSOR,
    WRAPPER_TENSOR,
)
from weft._lazy.owner import Stored
from weft._tensor import legacy_types, sparse_types
from weft._tensor.copying import handle_on, rebuild_owned, restored, slots_of
from weft._tensor.dim_names import checked_names, set_names
from weft._tensor.tensor import Tensor
from weft.errors import PickleError
from weft.nn._lazy_parameter import UninitializedBuffer, UninitializedParameter
from weft.nn._parameter import Buffer, Parameter

_NESTED = "torch.nested._internal.nested_tensor.NestedTensor"
DIM_RANGE = "torch._dynamo.decorators._DimRange"
_NAMED, _OWNED, _STORED = (f"{x.__module__}.{x.__qualname__}" for x in (named, rebuild_owned, Stored))


class _DimRange:
    """Stands for what PyTorch's compiler notes of a tensor's dims, which nothing reads here."""

    def __setstate__(self, state: object) -> None:
        pass


CLASSES: dict[str, type] = {
    "torch.Tensor": Tensor,
    "torch.nn.parameter.Parameter": Parameter,
    "torch.nn.parameter.Buffer": Buffer,
    _NESTED: Tensor,
    DIM_RANGE: _DimRange,
}
"""The classes of tensors in PyTorch's pickles, by name."""


def _lazy(
    kind: type[UninitializedParameter | UninitializedBuffer],
    requires_grad: Unpickled,
    home: Unpickled = None,
    dtype: Unpickled = None,
) -> Tensor:
    """A parameter or buffer without a shape. PyTorch gives the device and the type as a state, or not at all."""
    if not isinstance(home, (device, type(None))) or not isinstance(dtype, (DType, type(None))):
        raise PickleError("its pickle makes an uninitialized tensor of something else than a device and a type")
    return kind(requires_grad is True, home, dtype)


def _stored(kind: Unpickled, facts: Unpickled, parts: Unpickled) -> Stored[Tensor]:
    """What a file holds of a tensor with an owner that PyTorch does not know."""
    if (
        type(kind) is not str
        or not is_plain_dict(facts)
        or not is_plain_dict(parts)
        or not all(isinstance(part, Tensor) for part in parts.values())
    ):
        raise PickleError("its pickle describes a tensor by something else than facts and tensors")
    return Stored(kind, facts, parts)


def _is_stored(x: object) -> TypeGuard[Stored[Tensor]]:
    return isinstance(x, Stored)


def _owned(kind: Unpickled, stored: Unpickled, requires_grad: Unpickled, attributes: Unpickled) -> Tensor:
    """The tensor of which that was stored."""
    if not _is_stored(stored):
        raise PickleError("its pickle makes a tensor with an owner of something else than what such a one stores")
    tensor, target = restored(stored), class_of(kind)
    if not isinstance(tensor, target):
        tensor = handle_on(target, tensor, False)
    return _with_attributes(tensor.requires_grad_(requires_grad is True), attributes)


def _on_meta(dtype: Unpickled, size: Unpickled, stride: Unpickled, requires_grad: Unpickled) -> Tensor:
    if not isinstance(dtype, DType):
        raise PickleError("its pickle makes a tensor of something else than a type")
    check_place(MOST_SIZE, 0, size, stride)
    return without_data(tuple(size), dtype).requires_grad_(requires_grad is True)


def check_place(count: int, offset: Unpickled, size: Unpickled, stride: Unpickled) -> None:
    """`PickleError` for sizes and strides that are invalid, or lead out of a storage of `count` elements."""
    numbers = (offset, *size, *stride)
    if type(size) not in _TUPLES or not is_plain_tuple(stride) or len(size) != len(stride) or len(size) > MOST_DIMS:
        raise PickleError("its pickle makes a tensor whose sizes and strides disagree")
    if not all(type(n) is int and 0 <= n < MOST_SIZE for n in numbers):
        raise PickleError(
            f"its pickle makes a tensor of size [{', '.join(map(short_repr, size[:8]))}], which there is not"
        )
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if prod(size) and last >= count:
        raise PickleError(
            f"its pickle makes a tensor of size {list(size)} that needs {last + 1} elements of a storage of {count}"
        )


_TUPLES = (tuple, Size)


def _parameter(data: Unpickled, requires_grad: Unpickled, _: Unpickled) -> Tensor:
    if not isinstance(data, Tensor):
        raise PickleError(f"its pickle makes a Parameter of a {type(data).__name__}")
    return Parameter(data, requires_grad=requires_grad is True)


def _parameter_with_state(data: Unpickled, requires_grad: Unpickled, hooks: Unpickled, state: Unpickled) -> Tensor:
    return _with_attributes(_parameter(data, requires_grad, hooks), state)


def _from_type(function: Unpickled, kind: Unpickled, args: Unpickled, state: Unpickled) -> Tensor:
    """A tensor with the user's attributes, a Parameter, a Buffer, or one of a class that the program trusts."""
    if type(function) is not Global or function.build is None or type(args) is not tuple:
        raise PickleError("its pickle makes a tensor by something else than a function for that")
    target = class_of(kind)
    tensor = function.build(*args)
    if not isinstance(tensor, Tensor):
        raise PickleError(f"its pickle makes a tensor of a {type(tensor).__name__}")
    set_state = getattr(target, "__setstate__", None)
    if set_state is not None:  # of a class that the program trusts
        tensor = handle_on(target, tensor, tensor.requires_grad)
        set_state(tensor, state)
        return tensor
    attributes = _attributes(state)
    if function.name == WRAPPER_TENSOR.full_name:  # of whose tensors nothing can be asked before they are complete
        return _with_attributes(tensor, attributes)
    is_parameter = attributes.pop("_is_param", issubclass(target, Parameter))
    if is_parameter and not isinstance(tensor, Parameter):
        tensor = Parameter(tensor, requires_grad=tensor.requires_grad)
    if function.name == JAGGED_TENSOR.full_name:  # whose parts have been given as arguments, too
        attributes = {name: value for name, value in attributes.items() if name not in _PARTS_OF_JAGGED}
    if attributes.pop("_is_buffer", False):
        return Buffer(tensor, persistent=attributes.get("persistent") is not False)
    if not isinstance(tensor, target):
        tensor = handle_on(target, tensor, tensor.requires_grad)
    return _with_attributes(tensor, attributes)


_PARTS_OF_JAGGED = ("_values", "_offsets", "_lengths", "_ragged_idx", "_metadata_cache")


def class_of(kind: Unpickled) -> type[Tensor]:
    """The class of tensors that a pickle names; PyTorch's functions get it as an argument."""
    target = CLASSES.get(kind.name, kind.build) if type(kind) is Global else kind  # a class if the file is trusted
    if not (isinstance(target, type) and issubclass(target, Tensor)):
        raise PickleError(f"its pickle makes a tensor of {short_repr(kind)}, which is no class of tensors")
    return target


_OF_COMPILER = ("_dynamo_", "_specialize_on", "_has_dynamo_")
"""How the names of attributes begin by which PyTorch's compiler notes what it assumes of a tensor."""


def _attributes(state: Unpickled) -> dict[str, Unpickled]:
    if is_plain_tuple(state) and len(state) == 2:  # of a class with slots
        return _attributes(state[0]) | _attributes(state[1])
    attributes: Unpickled = state
    if attributes is None:
        return {}
    if type(attributes) not in (dict, OrderedDict) or not all(type(name) is str for name in attributes):
        raise PickleError("its pickle gives a tensor a state that names no attributes")
    return {name: value for name, value in attributes.items() if not name.startswith(_OF_COMPILER)}


def _with_attributes(tensor: Tensor, state: Unpickled) -> Tensor:
    for name, value in _attributes(state).items():
        if name == "names":
            set_names(tensor, checked_names(value, tensor.ndim))
            continue
        is_taken = hasattr(type(tensor), name) and name not in slots_of(type(tensor))
        if is_taken or name in vars(tensor):
            raise PickleError(f"its pickle gives a tensor the attribute {name!r}, which it must not have")
        setattr(tensor, name, value)
    return tensor


class Unset:
    """Stands for a tensor without elements, `torch.Tensor()`, which gets them by a state."""


def _unset(*args: Unpickled) -> Unset:
    if args:
        raise PickleError("its pickle calls torch.Tensor, which is nothing to call")
    return Unset()


FORMER_CLASSES = frozenset(
    [f"torch.{name}" for name in legacy_types.CLASSES] + [f"torch.sparse.{name}" for name in sparse_types.CLASSES]
)
"""PyTorch's older classes of tensors of one type, by name."""

FUNCTIONS: dict[str, AnyCallable | None] = {
    **dict.fromkeys(FORMER_CLASSES),
    **dict.fromkeys(CLASSES),
    "torch.Tensor": _unset,
    "torch.nn.parameter.UninitializedBuffer": partial(_lazy, UninitializedBuffer),
    "torch.nn.parameter.UninitializedParameter": partial(_lazy, UninitializedParameter),
    PARAMETER.full_name: _parameter,
    PARAMETER_WITH_STATE.full_name: _parameter_with_state,
    SPARSE_TENSOR.full_name: rebuilt_sparse,
    NESTED_TENSOR.full_name: rebuilt_nested,
    **dict.fromkeys((f"torch.sparse.{name}" for name in sparse_types.CLASSES), by_coordinates),
    JAGGED_TENSOR.full_name: rebuilt_jagged,
    META_TENSOR.full_name: _on_meta,
    FROM_TYPE.full_name: _from_type,
    GET_LAYOUT.full_name: layout_named,
    _NAMED: layout_named,
    _OWNED: _owned,
    _STORED: _stored,
}
"""What needs no builder; None for what is named, and not called."""
