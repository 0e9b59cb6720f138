"""Assembles the public functions: rows and composites become methods of `Tensor` and functions of modules."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import FunctionType

import weft._tensor.composite as _composites  # registers the composites
import weft.ops as _ops  # registers the rows
from weft._base.exports import missing
from weft._base.layout import strided
from weft._base.overriding import acts_for_user, handles, has_handler
from weft._base.types import AnyCallable, Arg, Kwargs, Result
from weft._tensor import (
    copying,
    dim_names,
    display,
    dlpack,
    gradients,
    legacy_types,
    node,
    pieces,
    protocols,
    subscript,
)
from weft._tensor.base import TensorBase
from weft._tensor.convert import as_tensor, tensor
from weft._tensor.derived import Derived
from weft._tensor.dunders import dunders_of
from weft._tensor.functions import FUNCTIONS, PublicFunction, with_inplace_argument
from weft._tensor.inplace import inplace_of
from weft._tensor.overriding import MEMBERS, NOT_WRAPPED, by_default, no_dispatch, separate
from weft._tensor.tensor import Tensor

assert _ops.LOADED, "rows are registered by import"
assert _composites.LOADED, "composites are registered by import"

# no cell: filled when the library is imported
PUBLIC: dict[str, dict[str, AnyCallable]] = {
    name: {}
    for name in ("", "nn.functional", "linalg", "special", "fft", "signal.windows", "masked", "sparse", "nested")
}
"""Public functions by module ("" is the package) and name."""


def _publish(module: str, name: str, function: AnyCallable) -> None:
    _export(module, name, function)
    _set_home(function, f"weft.{module}".rstrip("."), name)
    if isinstance(function, FunctionType):
        handles(function, function)


def _export(module: str, name: str, function: AnyCallable) -> None:
    functions = PUBLIC.get(module)
    if functions is None:
        modules = ", ".join(map(repr, PUBLIC))
        raise TypeError(f"{name}: no module {module!r} exports rows; the modules are {modules}")
    if name in functions:
        raise TypeError(f"{module or 'the package'} has two functions {name!r}; keep one of them")
    functions[name] = function


def _export_also(entry: PublicFunction) -> None:
    """Export a function from its further modules, which may give it other names."""
    for path in entry.public.also:
        module, name = (path, entry.name) if path in PUBLIC else path.rpartition(".")[::2]
        _publish(module, name, separate(entry.function) if isinstance(entry.function, FunctionType) else entry.function)


_FUNCTIONAL = "nn.functional"
_NOT_OVERRIDABLE = frozenset({"__new__", "__init_subclass__", "__hash__", "__iter__", "as_subclass"})


def _attach(name: str, function: object) -> None:
    if name in Tensor.__dict__ or name in Derived.__dict__:
        raise TypeError(f"Tensor.{name} is defined twice, by hand or by the table; keep one of them")
    if isinstance(function, property):
        setattr(Derived, name, _overridable_property(function, name))
        return
    if isinstance(function, FunctionType):
        function = separate(function)
        _set_home(function, "weft", f"Tensor.{name}")
        if name not in _NOT_OVERRIDABLE:
            handles(function, function, operator=name.endswith("__"))
    setattr(Derived, name, function)


_PUBLIC_HOME = re.compile(r"weft(\.[a-z]+)*")


def _overridable_property(part: property, name: str) -> property:
    """A property whose getter can be overridden."""
    assert isinstance(part.fget, FunctionType)
    read = separate(part.fget)
    whole = property(read, part.fset, part.fdel, part.__doc__)
    _set_home(read, "weft", f"Tensor.{name}")
    if has_handler(read):
        handles(read, whole.__get__)
    return whole


def _set_home(function: AnyCallable, module: str, name: str) -> None:
    """Set a function's public module and name, with which `pickle` finds it."""
    function.__module__, function.__qualname__ = module, name


def _attach_functions() -> None:
    for entry in FUNCTIONS.values():
        name, function, public, row = entry.name, entry.function, entry.public, entry.row
        if public.inplace:
            _attach_inplace(entry)
        if public.function and not (public.inplace_argument and public.module == _FUNCTIONAL):
            _publish(public.module, name, function)
        if public.method:
            _attach(public.method, function)
        if public.attribute and row is not None:
            is_written = row.view is not None and row.view.write is not None
            _attach(name, _part(function, row.doc) if is_written else property(function, doc=row.doc))
        _export_also(entry)


def _attach_inplace(entry: PublicFunction) -> None:
    name, public, spelled = entry.name, entry.public, f"{entry.name}_"
    form = inplace_of(entry.function, spelled, uniform=public.uniform, separate=public.separate)
    if public.method or not public.function:
        _attach(spelled, form)
    if public.function:
        _publish(public.module, spelled, form)
    if public.inplace_argument and entry.row is not None:
        _publish(_FUNCTIONAL, name, with_inplace_argument(entry.row, entry.function, form))
        if public.module != _FUNCTIONAL:
            _export(_FUNCTIONAL, spelled, form)


_UNDER_OWN_NAME = frozenset({
    "__eq__", "__floordiv__", "__and__", "__or__", "__xor__", "__lshift__", "__rshift__", "__iand__", "__ior__",
    "__ixor__", "__ilshift__", "__irshift__", "__rsub__", "__rfloordiv__", "__rmod__", "__rmatmul__", "__rlshift__",
    "__rrshift__",
})  # fmt: skip
"""Operators that `__torch_function__` gets as special methods. All others it gets as the method: `Tensor.add`."""


def _attach_operators() -> None:
    for entry in FUNCTIONS.values():
        method = "div" if entry.name == "true_divide" else entry.name
        for name, special in dunders_of(entry).items():
            setattr(Derived, name, special)
            _set_home(special, "weft", f"Tensor.{name}")
            inplace = "_" * (name not in entry.public.dunder)
            behind = special if name in _UNDER_OWN_NAME else getattr(Tensor, method + inplace)
            handles(special, behind, operator=True)


def _on_device(kind: str) -> property:
    return property(lambda tensor: tensor.device.type == kind, doc=f"Whether the elements are on a {kind} device.")


_FIXED: dict[str, tuple[Arg, str]] = {
    "layout": (strided, "`strided`: each element has a place in memory."),
    "is_sparse": (False, "False: each element is stored."),
    "is_sparse_csr": (False, "False: each element is stored."),
    "is_mkldnn": (False, "False: layouts are XLA's."),
    "is_nested": (False, "False: dims have one size."),
    "is_quantized": (False, "False: elements are plain numbers."),
    "name": (None, "None: tensors have no names."),
}


def _always(value: object, doc: str) -> property:
    return property(lambda tensor: value, doc=doc)


def _part(view: Callable[[Tensor], Tensor], doc: str) -> property:
    """A property that is a view and can be assigned to."""
    return property(view, lambda tensor, value: subscript.setitem(view(tensor), ..., value), doc=doc)


def _assign_names(tensor: Tensor, names: Sequence[str | None] | None) -> None:
    tensor.rename_(*([None] if names is None else names))


def _output_nr(tensor: Tensor) -> int:
    origin = tensor._read().origin
    return 0 if tensor.is_leaf or origin is None else origin.index


def _attach_properties() -> None:
    for kind in ("cpu", "cuda", "meta", "mps", "xla", "xpu", "ipu", "mtia", "maia", "vulkan"):
        _attach(f"is_{kind}", _on_device(kind))
    real = FUNCTIONS["", "real"].function
    _attach("real", _part(real, real.__doc__ or ""))
    _attach("names", property(dim_names.names_of, _assign_names, doc="The name of each dim, or None."))
    _attach("grad_fn", property(node.grad_fn_of, doc="The node of the graph that has made it, or None for a leaf."))
    _attach("output_nr", property(_output_nr, doc="Which output it is of the operator that made it; 0 for a leaf."))
    for name, (value, doc) in _FIXED.items():
        _attach(name, _always(value, doc))


_SPECIAL: Kwargs = {
    "__new__": staticmethod(legacy_types.new_tensor),
    "_make_subclass": staticmethod(legacy_types.make_subclass),
    "_make_wrapper_subclass": staticmethod(legacy_types.make_wrapper_subclass),
    "__iter__": pieces.iterate,
    "__getitem__": subscript.getitem,
    "__setitem__": subscript.setitem,
    "__delitem__": subscript.delitem,
    "__repr__": display.show,
    "__format__": display.formatted,
    "__dlpack__": dlpack.exported,
    "__dlpack_device__": dlpack.device_of_export,
    "__contains__": protocols.contains,
    "__array_wrap__": protocols.wrapped,
    "__copy__": protocols.copied,
    "__deepcopy__": copying.deepcopy,
    "__reduce_ex__": copying.reduce,
    "__torch_function__": classmethod(by_default),
    "__torch_dispatch__": staticmethod(no_dispatch),
    "backward": gradients.backward_of,
}


def _attach_rest() -> None:
    for function in (tensor, as_tensor):
        handles(function, function, only_modes=True)
    for name, method in _SPECIAL.items():
        if isinstance(method, FunctionType):
            method = separate(method)
            method.__name__ = name
            _set_home(method, "weft", f"Tensor.{name}")
            if has_handler(method):
                handles(method, method)
        setattr(Derived, name, method)


def _list_overridable_members() -> None:
    for kind in (Tensor, TensorBase, Derived):
        for name, member in kind.__dict__.items():
            is_private = name.startswith("_") and name not in _PRIVATE and not name.endswith("__")
            if name in MEMBERS or name in _NOT_OVERRIDABLE or is_private or _is_operator(name, member):
                continue
            if isinstance(member, FunctionType | property):
                MEMBERS[name] = member
                if kind is Tensor and has_handler(member):
                    handles(member, member)
                whole: Arg = member.fget if isinstance(member, property) else member
                if not _PUBLIC_HOME.fullmatch(whole.__module__ or ""):
                    _set_home(whole, "weft", f"Tensor.{name}")
    NOT_WRAPPED.extend(vars(Tensor)[name].__get__ for name in ("grad", "_grad", "_base"))
    acts_for_user(Tensor.__iter__)


_PRIVATE = frozenset({"_base", "_grad", "_version", "_is_view"})


def _is_operator(name: str, member: object) -> bool:
    """Whether Python would prefer a special method of a subclass, if it is another one than that of `Tensor`."""
    return name.endswith("__") and has_handler(member)


_attach_functions()
_attach_operators()
_attach_properties()
_attach_rest()
_list_overridable_members()


def namespace(module: str) -> tuple[Callable[[str], Result], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for a public module."""
    functions = PUBLIC[module]

    def look_up(name: str) -> AnyCallable:
        try:
            return functions[name]
        except KeyError:
            raise missing(f"weft.{module}", name, lambda: functions) from None

    return look_up, lambda: sorted(functions)
