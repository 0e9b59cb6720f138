"""Whole objects: a pickle beside the tensors, for what has no form in JSON, such as modules, optimizers and closures.

The pickle names classes and functions, as PyTorch's does, so loading it imports them and may run their code. It refers
to tensors and NumPy arrays by number; they are stored, shared and placed as they are in files without a pickle.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from weft._base import layout
from weft._base.device import device
from weft._base.dtype import dtype_named
from weft._base.guards import is_plain_dict
from weft._base.size import Size
from weft._base.torch_alias import own_name
from weft._base.types import AnyCallable, PyTree, SavedState
from weft._checkpoint.keys import Unpickled
from weft._checkpoint.pickled import Global, Unpickler
from weft._checkpoint.safe import Plain, trusted_global
from weft._checkpoint.torch_names import full_names
from weft._tensor.copying import handle_on, set_extras
from weft._tensor.tensor import Tensor
from weft.errors import PickleError
from weft.nn._lazy_parameter import UninitializedBuffer, UninitializedParameter
from weft.nn._parameter import Buffer, Parameter

if TYPE_CHECKING:
    from types import ModuleType

    from weft._checkpoint.pickled import Fetch

_KINDS = (Tensor, Parameter, Buffer, UninitializedParameter, UninitializedBuffer)


def typed(kind: type[Tensor], plain: Tensor, requires_grad: bool, extras: SavedState) -> Tensor:
    """A tensor of a class with attributes of its own, as pickles build it."""
    result = handle_on(kind, plain, requires_grad)
    set_extras(result, extras)
    return result


def trusting(
    content: io.BytesIO,
    stored: Fetch,
    pickle_module: ModuleType | None = None,
    encoding: str = "utf-8",
    stand_in: Callable[[str], Unpickled] = lambda name: None,
) -> PyTree:
    """The object of a pickle, by Python's own reader: it imports what the pickle names, and runs its code.

    `stand_in` gives what stands for a global, or None for that which has the name.
    """
    unpickler_class = _unpickler_class((pickle_module or pickle).Unpickler)
    try:
        return unpickler_class(content, stored, stand_in, encoding=encoding).load()
    except ImportError as error:
        raise PickleError(f"its pickle needs what cannot be imported here: {error}") from error
    except AttributeError as error:
        raise PickleError(f"its pickle needs a class or function that is not there: {error}") from error


@cache
def _unpickler_class(base: type[pickle.Unpickler]) -> AnyCallable:
    """The reader over a given one, such as dill's. A class for each call would be a cycle with the file's tensors."""

    class TrustingUnpickler(base):
        def __init__(
            self, content: io.BytesIO, stored: Fetch, stand_in: Callable[[str], Unpickled], *, encoding: str
        ) -> None:
            super().__init__(content, encoding=encoding)
            self._stored = stored
            self._stand_in = stand_in

        def find_class(self, module: str, name: str) -> Unpickled:
            entry = self._stand_in(f"{module}.{name}")
            return entry if entry is not None else super().find_class(own_name(module), name)

        def persistent_load(self, pid: Unpickled) -> Unpickled:
            return self._stored(pid)

    return TrustingUnpickler


def restricted(content: io.BytesIO, size: int, stored: Fetch, encoding: str = "utf-8") -> PyTree:
    """The object of a pickle of `size` bytes, built without running code but that which the program trusts."""
    plain = Plain(size)
    obj = Unpickler(_finder(plain), stored, plain.set_state, plain.keys, encoding).load(content)
    if isinstance(obj, Global):
        raise PickleError(f"it holds {obj.name} by itself; classes and functions are not loaded")
    return obj


def _finder(plain: Plain) -> Callable[[str], Unpickled]:
    table: dict[str, Unpickled] = plain.table()
    table |= dict.fromkeys(full_names(device), table["torch.device"])
    table |= dict.fromkeys(full_names(Size), table["torch.Size"])
    table |= {_name_of(make): Global(_name_of(make), _of_text(make)) for make in (dtype_named, layout.named)}
    table[_name_of(typed)] = Global(_name_of(typed), _typed)
    table |= {name: Global(_name_of(kind), None) for kind in _KINDS for name in full_names(kind)}

    def find(name: str) -> Unpickled:
        return table[name] if name in table else trusted_global(name)

    return find


def is_known(name: str) -> bool:
    """Whether `restricted` loads what has this name."""
    try:
        _finder(Plain(0))(name)
    except PickleError:
        return False
    return True


def _typed(kind: Unpickled, plain: Unpickled, requires_grad: Unpickled, extras: Unpickled) -> Tensor:
    classes = {_name_of(one): one for one in _KINDS}
    if type(kind) is not Global or not isinstance(plain, Tensor) or not is_plain_dict(extras):
        raise PickleError("its pickle makes a tensor of something else than a class, elements and attributes")
    tensor_class: Unpickled = classes.get(kind.name, kind.build)
    if any(hasattr(tensor_class, name) for name in extras if name != "names"):
        raise PickleError(f"its pickle gives a tensor the attributes {sorted(extras)}, which it must not have")
    return typed(tensor_class, plain, requires_grad is True, extras)


def _of_text(make: Callable[[str], object]) -> Callable[[Unpickled], object]:
    def build(name: Unpickled) -> object:
        if type(name) is not str:
            raise PickleError(f"its pickle gives a {type(name).__name__} as the name of a type or layout")
        return make(name)

    return build


def _name_of(entry: AnyCallable) -> str:
    return f"{entry.__module__}.{entry.__qualname__}"
