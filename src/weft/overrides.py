"""Overriding the functions of this package for classes of arguments (`__torch_function__`), and for blocks (modes)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache, wraps
from types import FunctionType
from typing import Any, Self

import weft
from weft import fft, linalg, special
from weft._base.cell import LocalCell
from weft._base.state import ambient
from weft._base.types import AnyCallable, Arg, Args, Kwargs, Result
from weft._tensor.assemble import PUBLIC
from weft._tensor.overriding import MEMBERS, handle, overriding_among, setting
from weft._tensor.overriding import pop_mode as _pop_mode
from weft._tensor.overriding import push_mode as _push_mode
from weft._tensor.tensor import Tensor
from weft.nn import functional, init
from weft.ops._namespaces import OpOverload, OpOverloadPacket

# --- in functions that can be overridden --------------------------------------------------------------------------

_skipped = LocalCell("whether the next override is skipped", False)


def has_torch_function(relevant_args: Iterable[object]) -> bool:
    """Whether a mode is on, or the class of an argument other than `Tensor` and `Parameter` overrides functions.

    A function that can be overridden begins with it, and with `handle_torch_function`.
    """
    if _skipped.get():
        _skipped.set(False)
        return False
    return ambient().overrides.mode is not None or bool(overriding_among(relevant_args))


def has_torch_function_unary(obj: object) -> bool:
    """`has_torch_function` for one argument."""
    return has_torch_function((obj,))


def has_torch_function_variadic(*args: Arg) -> bool:
    """`has_torch_function` for arguments that are given one by one."""
    return has_torch_function(args)


def handle_torch_function(
    public_api: AnyCallable, relevant_args: Iterable[object], *args: Arg, **kwargs: Arg
) -> Result:
    """Call `__torch_function__` of the innermost mode and, after it, of the `relevant_args`, until one answers.

    Subclasses come before their bases, otherwise arguments come from left to right. Raises `TypeError` if all have
    returned `NotImplemented`.
    """
    return handle(public_api, relevant_args, args, kwargs)


def wrap_torch_function(dispatcher: Callable[..., Iterable[object]]) -> Callable[[AnyCallable], AnyCallable]:
    """Decorate a function so that it can be overridden; `dispatcher(*args, **kwargs)` gives the relevant arguments."""

    def inner(func: AnyCallable) -> AnyCallable:
        @wraps(func)
        def wrapped(*args: Arg, **kwargs: Arg) -> Result:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return func(*args, **kwargs)

        return wrapped

    return inner


def redispatch_function(func: AnyCallable, types: Iterable[type], args: Args, kwargs: Kwargs | None) -> Result:
    """Call `func` from `__torch_function__` without being asked again for this call; functions that it calls are.

    Functions of this package call no others that could be overridden, and give plain tensors.
    """
    del types
    if resolve_name(func) is not None:
        with setting(by_classes=False, by_modes=False):
            return func(*args, **(kwargs or {}))
    with _skipped.within(True):
        return func(*args, **(kwargs or {}))


def is_tensor_like(inp: object) -> bool:
    """Whether this is a `Tensor`, or an object with a `__torch_function__`."""
    return type(inp) is Tensor or hasattr(inp, "__torch_function__")


# --- modes --------------------------------------------------------------------------------------------------------


class TorchFunctionMode:
    """Overrides functions in a block, `with Mode():`, whatever their arguments are: also those that create tensors.

    A subclass defines `__torch_function__(self, func, types, args=(), kwargs=None)`. While it runs, the mode is off,
    and the next outer mode is on. Of the attributes of tensors that are no functions, such as `shape`, modes see those
    that need the elements or the tape.
    """

    def __init__(self) -> None:
        pass

    def __torch_function__(
        self, func: AnyCallable, types: Iterable[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> Result:
        """What is called in place of `func(*args, **kwargs)`; `types` are the classes of arguments that override it."""
        raise NotImplementedError(f"{type(self).__name__} must define __torch_function__")

    def __enter__(self) -> Self:
        _push_mode(self)
        return self

    def __exit__(self, *_: object) -> None:
        _pop_mode()


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that calls every function."""

    def __torch_function__(
        self, func: AnyCallable, types: Iterable[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> Result:
        """The result of `func`."""
        return func(*args, **(kwargs or {}))


def _get_current_function_mode() -> TorchFunctionMode | None:
    stack = _get_current_function_mode_stack()
    return stack[-1] if stack else None


def _get_current_function_mode_stack() -> list[TorchFunctionMode]:
    return list(ambient().overrides.modes)


@contextmanager
def _pop_mode_temporarily() -> Any:
    old = _pop_mode()
    try:
        yield old
    finally:
        _push_mode(old)


def _enable_torch_function() -> AbstractContextManager[None]:
    return setting(by_classes=True, by_modes=True)


def enable_reentrant_dispatch() -> AbstractContextManager[None]:
    """A block in which functions can be overridden again: what PyTorch needs within `__torch_dispatch__`."""
    return setting(by_classes=True, by_modes=True)


# --- lists of functions -------------------------------------------------------------------------------------------


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def _namespaces() -> list[tuple[str, object, Mapping[str, object]]]:
    """Name, module or class, and members of everything that has functions to override."""
    operators = {name: getattr(Tensor, name) for name in dir(Tensor) if name not in MEMBERS and not _is_private(name)}
    functions = {**PUBLIC[""], **{name: getattr(weft, name) for name in _BY_HAND}}
    return [
        ("torch", weft, functions),
        ("torch.nn.functional", functional, PUBLIC["nn.functional"]),
        ("torch.nn.init", init, {name: getattr(init, name) for name in _INITIALIZERS}),
        ("torch.Tensor", Tensor, {**operators, **MEMBERS}),
        ("torch.linalg", linalg, PUBLIC["linalg"]),
        ("torch.fft", fft, PUBLIC["fft"]),
        ("torch.special", special, PUBLIC["special"]),
    ]


_BY_HAND = ("tensor", "as_tensor", "scalar_tensor", "asarray", "from_numpy", "frombuffer")
_INITIALIZERS = ("uniform_", "normal_", "constant_", "kaiming_uniform_")
_IGNORED = frozenset({
    "arange", "asarray", "as_strided", "as_tensor", "bartlett_window", "blackman_window", "broadcast_shapes",
    "can_cast", "empty", "empty_strided", "eye", "fftfreq", "fill", "from_numpy", "frombuffer", "full",
    "get_default_device", "hamming_window", "hann_window", "is_storage", "is_tensor", "kaiser_window", "linspace",
    "logspace", "normal", "ones", "promote_types", "rand", "rand_like", "randint", "randint_like", "randn",
    "randn_like", "randperm", "range", "result_type", "rfftfreq", "scalar_tensor", "tensor", "tril_indices",
    "triu_indices", "typename", "vander", "zeros", "__class__", "__delattr__", "__delitem__", "__dir__",
    "__getattribute__", "__hash__", "__init__", "__init_subclass__", "__iter__", "__new__", "__setattr__",
    "__subclasshook__", "__torch_function__", "as_subclass", "new", "new_empty", "new_full", "new_ones", "new_tensor",
    "new_zeros", "stride", "unflatten",
})  # fmt: skip
"""The functions that PyTorch says are not to be overridden. Modes see those of them that create tensors."""
_IGNORED |= {f"sparse_{layout}_tensor" for layout in ("coo", "csr", "csc", "bsr", "bsc", "compressed")}
_METHODS_ALONE = frozenset({"as_strided", "fill", "normal"})  # ignored as functions, but not as methods


@cache
def get_ignored_functions() -> set[AnyCallable]:
    """The public functions that classes of arguments cannot override, most of them because they take no tensors."""
    return {
        member
        for _, place, members in _namespaces()
        for name, member in members.items()
        if callable(member) and _is_ignored(name, place)
    }


def _is_ignored(name: str, place: object) -> bool:
    return name in _IGNORED and not (place is Tensor and name in _METHODS_ALONE)


@cache
def _overridable() -> tuple[dict[object, list[AnyCallable]], dict[object, str]]:
    """The overridable functions by place they are, and the name of every function."""
    by_place: dict[Any, list[Callable[..., Any]]] = {}
    names: dict[Any, str] = {}
    for path, place, members in _namespaces():
        for name, member in members.items():
            if isinstance(member, property):
                names.setdefault(member.__get__, f"{path}.{name}.__get__")
                names.setdefault(member.__set__, f"{path}.{name}.__set__")
                by_place.setdefault(member, []).append(member.__get__)
            elif isinstance(member, FunctionType):
                names.setdefault(member, f"{path}.{name}")
                is_own = place is Tensor or place is init or not (name.startswith("_") or name.endswith("_"))
                if is_own and not _is_ignored(name, place):
                    by_place.setdefault(place, []).append(member)
    return by_place, names


def get_overridable_functions() -> dict[object, list[AnyCallable]]:
    """The functions that can be overridden, by the module or class that has them; `[p.__get__]` for a property `p`."""
    return {place: list(functions) for place, functions in _overridable()[0].items()}


@cache
def get_testing_overrides() -> dict[AnyCallable, AnyCallable]:
    """For every overridable function, one with the same parameters that returns -1, to test classes with."""
    return {function: _stand_in(function) for functions in _overridable()[0].values() for function in functions}


def _stand_in(function: Arg) -> AnyCallable:
    is_getter = function.__name__ == "__get__"
    signature = inspect.signature(function.__self__.fget if is_getter else function)

    def stand_in(*args: Arg, **kwargs: Arg) -> int:
        signature.bind(*args, **kwargs)
        return -1

    stand_in.__signature__ = signature
    return stand_in


def resolve_name(f: object) -> str | None:
    """The name of a function as `__torch_function__` gets it, such as `torch.Tensor.add`; None if it is unknown."""
    if isinstance(f, OpOverload | OpOverloadPacket):
        return str(f)
    try:
        return _overridable()[1].get(f)
    except TypeError:  # it has no hash
        return None


def is_tensor_method_or_property(func: AnyCallable) -> bool:
    """Whether a function as `__torch_function__` gets it is a method of `Tensor`, or the `__get__` of a property."""
    return func.__name__ == "__get__" or func in _overridable()[0][Tensor]


@cache
def get_default_nowrap_functions() -> set[AnyCallable]:
    """The functions whose results are not made instances of the class of their arguments."""
    return {attribute.__get__ for attribute in (vars(Tensor).get("_base"), vars(Tensor).get("grad")) if attribute}
