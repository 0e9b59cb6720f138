"""Objects as PyTorch's pickles: tensors by its functions on storages, classes and functions under its names.

A pickle names Python objects by module and name. They are pickled under their names here, which `renamed` then replaces
by PyTorch's. So no module `torch` has to be there, neither PyTorch's nor one that stands for it.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType

from weft._base.device import META, device
from weft._base.dtype import DType
from weft._base.guards import is_dict, is_list_or_tuple
from weft._base.layout import layout, memory_format, qscheme
from weft._base.of_pytorch import is_of_pytorch
from weft._base.site import warn_user
from weft._base.size import Size
from weft._base.types import AnyCallable, Arg, Args, PyTree
from weft._checkpoint.buffers import computed
from weft._checkpoint.options import skipping
from weft._checkpoint.sources import source_of
from weft._checkpoint.storage_table import StorageAgain, StorageRecord, StorageTable
from weft._checkpoint.torch_layouts import has_layout_of_torch, parts_of
from weft._checkpoint.torch_names import (
    FROM_CPU,
    FROM_TYPE,
    GET_LAYOUT,
    META_TENSOR,
    PARAMETER,
    PARAMETER_WITH_STATE,
    TYPED_TENSOR,
    UNTYPED_TENSOR,
    WRAPPER_TENSOR,
    renamed,
)
from weft._lazy.owner import Stored
from weft._tensor.copying import extras_of, plain_kind, rebuild_owned
from weft._tensor.kind_names import advice
from weft._tensor.storage import TypedStorage, UntypedStorage
from weft._tensor.tensor import Tensor
from weft.errors import CheckpointError, PicklingError
from weft.nn._lazy_parameter import is_lazy
from weft.nn._module import Module
from weft.nn._parameter import Buffer, Parameter
from weft.nn._state_dict import StateDict
from weft.ops._strides import row_major

_MOST_PROTOCOL = 3  # later ones put names into strings and frames, where `renamed` does not look


def pickled(
    obj: PyTree,
    pickle_module: ModuleType | None = None,
    protocol: int = 2,
    *,
    older: bool = False,
    check: Callable[[bytes], None] | None = None,
) -> tuple[bytes, StorageTable]:
    """The pickle of an object, and the storages to which it refers; `older` for the format from before 1.6.

    `check` may refuse a pickle by a `PickleError`. `PicklingError` names what is refused or cannot be pickled.
    """
    computed()  # by one program, rather than one for each tensor as its elements are written

    def attempt(part: PyTree) -> tuple[bytes, StorageTable]:
        content, storages = _pickled(part, pickle_module or pickle, min(protocol, _MOST_PROTOCOL), older)
        if check is not None:
            check(content)
        return content, storages

    try:
        return attempt(obj)
    except RecursionError as error:
        raise CheckpointError("cannot save obj: its objects are nested too deeply") from error
    except (pickle.PickleError, AttributeError, TypeError, ValueError, NotImplementedError) as error:
        raise PicklingError(f"cannot save {_culprit(obj, attempt)}: {error}") from error


def _pickled(obj: PyTree, pickle_module: ModuleType, protocol: int, older: bool) -> tuple[bytes, StorageTable]:
    storages = StorageTable()
    while True:
        content = io.BytesIO()
        try:
            _pickler_class(pickle_module.Pickler)(content, protocol, storages, older=older).dump(obj)
        except StorageAgain as again:  # seldom: a part of a storage came first, and another part or all of it later
            storages = again.table
        else:
            return renamed(content.getvalue()), storages


Call = tuple[AnyCallable, Args]
Reduced = str | Call | tuple[AnyCallable, Args, object, None, Iterator[tuple[object, object]]]
"""What a reducer gives: the name of a global, or a function with its arguments, and perhaps a state and items."""


@cache
def _pickler_class(base: type[pickle.Pickler]) -> AnyCallable:
    """The pickler over a given one, such as cloudpickle's. A class for each call would be a cycle with its tensors."""

    class Pickler(base):
        def __init__(self, file: io.BytesIO, protocol: int, storages: StorageTable, *, older: bool) -> None:
            super().__init__(file, protocol)
            self._storages = storages
            self._view = (None,) if older else ()  # a part of a storage, which nothing writes
            self._sourced: set[type] | None = set() if older else None

        def persistent_id(self, obj: object) -> tuple[object, ...] | None:
            if isinstance(obj, StorageRecord):
                return (*obj.persistent_id, *self._view)
            if isinstance(obj, (TypedStorage, UntypedStorage)):
                return (*self._storages.of_storage(obj).persistent_id, *self._view)
            if self._sourced is None or not (isinstance(obj, type) and issubclass(obj, Module)):
                return None
            if obj in self._sourced:  # the class itself is a part of what stands for it the first time
                return None
            self._sourced.add(obj)
            return ("module", obj, *source_of(obj))

        def reducer_override(self, obj: object) -> Reduced:
            if isinstance(obj, (Tensor, _Elements)):
                return _reduced(obj, self._storages)
            for kind, reduce in _REDUCERS:
                if isinstance(obj, kind):
                    return reduce(obj)
            if is_of_pytorch(type(obj)) and type(obj).__name__ not in ("Size", "device"):  # which are read as Weft's
                raise TypeError(f"it is a {type(obj).__module__}.{type(obj).__qualname__}{advice(obj)}")
            inherited = getattr(super(), "reducer_override", None)  # cloudpickle's
            return NotImplemented if inherited is None else inherited(obj)

    return Pickler


def _as_ordered(state: StateDict) -> Reduced:
    return OrderedDict, (), vars(state), None, iter(state.items())


_REDUCERS: tuple[tuple[type, Callable[[Arg], Reduced]], ...] = (
    (DType, lambda dtype: dtype.name),
    *((kind, lambda constant: repr(constant).removeprefix("torch.")) for kind in (qscheme, memory_format)),
    (layout, lambda target: (GET_LAYOUT, (repr(target),))),
    (device, lambda place: (device, (place.type,) if place.index is None else (place.type, place.index))),
    (Size, lambda size: (Size, (tuple(size),))),
    (Stored, lambda stored: (Stored, (stored.kind, stored.facts, stored.parts))),
    # whose class is a detail: files have PyTorch's
    (StateDict, _as_ordered),
)
"""How objects of this package are pickled: as the name of a global, or as a call of one."""


# --- tensors ----------------------------------------------------------------------------------------------------


class _Elements:
    """Stands for the data of a parameter, or for a tensor's copy in the host's memory: no class, no attributes."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def _reduced(obj: Tensor | _Elements, storages: StorageTable) -> Reduced:
    """The function and the arguments that make a tensor again."""
    if isinstance(obj, _Elements):
        return _data(obj.tensor, False, storages)
    if is_lazy(obj):
        return type(obj), (obj.requires_grad, obj.device, obj.dtype)
    if skipping.skip_data:
        _check_skipped(obj)
    if _HOME in obj.__dict__:
        return _reduced_without_elements(obj, storages)
    value = obj._read()
    owner = value.aval.owner
    if owner is not None and not has_layout_of_torch(owner):
        return rebuild_owned, (plain_kind(obj), owner.save(value), obj.requires_grad, extras_of(obj))
    attributes = extras_of(obj)
    own_state = getattr(type(obj), "__getstate__", None)
    if owner is None and own_state is not getattr(Tensor, "__getstate__", None):  # whose `__setstate__` takes it
        return FROM_TYPE, (*_data_of_class(obj, storages), obj.__getstate__())
    kind = type(obj) if owner is None else Tensor  # PyTorch has no classes of their own for these layouts
    if kind is Parameter:
        args = (_Elements(obj), obj.requires_grad, _no_hooks())
        return (PARAMETER_WITH_STATE, (*args, attributes)) if attributes else (PARAMETER, args)
    function, args = _data(obj, obj.requires_grad, storages)
    if kind is Buffer and isinstance(obj, Buffer):
        kind, attributes = Tensor, {**attributes, "persistent": obj.persistent, "_is_buffer": True}
    if kind is Tensor and not attributes:
        return function, args
    return FROM_TYPE, (function, kind, args, attributes)


_HOME = "_wrapper_device"  # the attribute of tensors without elements that says on which device they claim to be


def _check_skipped(x: Tensor) -> None:
    if x.is_nested:
        raise NotImplementedError("Cannot serialize nested tensor under skip_data context manager")
    if x.device is META:
        warn_user("Serializing tensors on the meta device under skip_data context manager is a no-op")


def _reduced_without_elements(x: Tensor, storages: StorageTable) -> Reduced:
    """How a tensor is made again whose class holds what stands for it, or a fake one as a tensor of zeros."""
    if skipping.skip_data and skipping.materialize_fake_tensors and hasattr(x, "fake_mode"):
        record, places = storages.of_tensor(x, exact=True)
        args = (record, places.offset, (*places.sizes,), (*places.strides,), x.requires_grad, _no_hooks())
        return (TYPED_TENSOR, args) if record.is_typed else (UNTYPED_TENSOR, (*args, x.dtype))
    if hasattr(x, "fake_mode"):
        raise TypeError("a fake tensor has no elements; save it under skip_data(materialize_fake_tensors=True)")
    sizes = tuple(x.shape)
    args = (type(x), x.dtype, sizes, tuple(x.stride()), 0, x.layout, x.device, x.requires_grad)
    attributes = {name: value for name, value in extras_of(x).items() if name != _HOME}
    own_state = getattr(type(x), "__getstate__", None)
    state = attributes if own_state is getattr(Tensor, "__getstate__", None) else x.__getstate__()
    return FROM_TYPE, (WRAPPER_TENSOR, type(x), args, state)


def _data_of_class(obj: Tensor, storages: StorageTable) -> tuple[AnyCallable, type[Tensor], Args]:
    function, args = _data(obj, obj.requires_grad, storages)
    return function, type(obj), args


def _no_hooks() -> OrderedDict[str, object]:
    return OrderedDict()


def _data(tensor: Tensor, requires_grad: bool, storages: StorageTable) -> Call:
    """The function and the arguments that make the elements of a tensor again."""
    if tensor._read().aval.owner is not None:
        return parts_of(tensor, storages.of_tensor)
    home, sizes = tensor.device, tuple(tensor.shape)
    if home is META:
        return META_TENSOR, (tensor.dtype, sizes, row_major(sizes), requires_grad)
    if home.type not in ("cpu", "cuda"):
        return FROM_CPU, (_Elements(tensor.detach().cpu()), tensor.dtype, str(home), requires_grad)
    record, places = storages.of_tensor(tensor)
    args = (record, places.offset, (*places.sizes,), (*places.strides,), requires_grad, _no_hooks())
    return (TYPED_TENSOR, args) if record.is_typed else (UNTYPED_TENSOR, (*args, tensor.dtype))


# --- errors -----------------------------------------------------------------------------------------------------


def _culprit(obj: PyTree, attempt: Callable[[PyTree], object]) -> str:
    """The path of the innermost part of an object at which pickling it by itself fails."""
    path = "obj"
    while True:
        for step, part in _parts(obj):
            try:
                attempt(part)
            except Exception:  # users' `__reduce__` may raise anything; the error that is shown is the first one
                path, obj = path + step, part
                break
        else:
            return path


def _parts(obj: object) -> list[tuple[str, PyTree]]:
    if is_dict(obj):
        return [(f"[{key!r}]", value) for key, value in obj.items()]
    if is_list_or_tuple(obj):
        return [(f"[{at}]", value) for at, value in enumerate(obj)]
    state: object = getattr(obj, "__dict__", None)
    if not is_dict(state) or is_of_pytorch(type(obj)) or isinstance(obj, type):
        return []
    members: dict[str, PyTree] = {**state.get("_modules", {}), **state}  # a module's submodules are its attributes
    return [(f".{name}", value) for name, value in members.items() if name != "_modules"]
