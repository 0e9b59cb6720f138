"""`__torch_function__`: who is asked instead of a public function, in which order, with which arguments."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import cache, wraps
from importlib import import_module
from types import FrameType, FunctionType

from weft._base.call_site import written_arguments
from weft._base.guards import LIST_OR_TUPLE
from weft._base.of_pytorch import is_module_of_pytorch, is_of_pytorch
from weft._base.overriding import (
    CO_VARARGS,
    CO_VARKEYWORDS,
    Handler,
    Operators,
    Overridden,
    acts_for_user,
    handler_at,
    handles,
    raise_operator,
    raise_overridden,
)
from weft._base.own_names import own_form
from weft._base.site import UNTIL_USER, end_at_user
from weft._base.state import ambient, set_field
from weft._base.types import AnyCallable, Arg, Args, AttributeValue, Kwargs, Result
from weft._tensor.base import VALUE_SLOT, TensorBase
from weft.errors import ArgumentError


class _Disabled:
    """The `__torch_function__` of classes that override nothing, such as `Parameter`: it calls the function.

    PyTorch calls it, and classes of libraries in theirs. A function would be bound to the object by which PyTorch
    finds it, and PyTorch warns of that.
    """

    def __call__(self, func: AnyCallable, types: Iterable[type], args: Args = (), kwargs: Arg = None) -> Result:
        _refuse_of_pytorch(func, types)
        with setting(by_classes=False):
            return func(*args, **(kwargs or {}))


disabled = _Disabled()


class _Guarded:
    """The attribute `_value` of an overriding class, which a public function cannot read."""

    def __get__(self, tensor: TensorBase | None, kind: type) -> AttributeValue:
        if tensor is None:
            return self
        require_not_overridden(tensor)
        try:
            return VALUE_SLOT.__get__(tensor)
        except AttributeError:
            raise AttributeError(f"this {kind.__name__} has no elements: its `__new__` has made no tensor") from None

    def __set__(self, tensor: TensorBase, value: object) -> None:
        VALUE_SLOT.__set__(tensor, value)


_GUARD = _Guarded()
_TENSORS: tuple[type, ...] = (TensorBase,)

# no cell: filled when the library is imported
MEMBERS: Kwargs = {}
"""The methods and properties of `Tensor`, by name, of which overriding classes have versions of their own."""


def become_overriding(kind: type[TensorBase]) -> None:
    """Let a new subclass of `Tensor` override functions, unless it says that it does not."""
    if is_dispatching(kind):
        # above, and not needed by most programs
        import_module("weft._interop.aten.members").attach(kind)
        kind._value = _GUARD  # pyright: ignore[reportAttributeAccessIssue]
        own: Arg = kind
        if getattr(own.__torch_function__, "__func__", None) is by_default:  # as in PyTorch, unless it defines both
            own.__torch_function__ = disabled
    if getattr(kind, "__torch_function__", disabled) is disabled:
        return
    kind._value = _GUARD  # pyright: ignore[reportAttributeAccessIssue]
    for name, member in MEMBERS.items():
        if _inherited(kind, name) is member:
            setattr(kind, name, _overridable_member(member))


@cache
def _overridable_member(member: Arg) -> AnyCallable | property:
    if not isinstance(member, property):
        return overridable(member, member)
    public = (member.__get__, member.__set__, member.__delete__)
    parts = (member.fget, member.fset, member.fdel)
    read, write, delete = [part and overridable(part, whole) for part, whole in zip(parts, public, strict=True)]
    return property(read, write, delete, member.__doc__)


def _inherited(kind: type, name: str) -> AttributeValue:
    return next((c.__dict__[name] for c in kind.__mro__ if name in c.__dict__), None)


def is_overriding(kind: type) -> bool:
    """Whether objects of a class are asked: it has a `__torch_function__`, and is neither `Tensor` nor `Parameter`."""
    if getattr(kind, "__torch_function__", disabled) is disabled:
        return False
    if issubclass(kind, _TENSORS):
        return getattr(kind, "_value", None) is _GUARD
    return not is_of_pytorch(kind)


def is_dispatching(kind: type) -> bool:
    """Whether objects of a class are asked before operators of PyTorch's run: it defines `__torch_dispatch__`."""
    return issubclass(kind, _TENSORS) and getattr(kind, "__torch_dispatch__", no_dispatch) is not no_dispatch


def no_dispatch(func: AnyCallable, types: Iterable[type], args: Args = (), kwargs: Arg = None) -> Result:
    """The `__torch_dispatch__` of `Tensor`: the operator itself, on what the tensors are without their classes."""
    del types
    with setting(by_operators=False, by_classes=False):
        return func(*args, **(kwargs or {}))


def require_not_overridden(x: object) -> None:
    """End the public function that the user has called if the class of its argument `x` overrides it."""
    kind = type(x)
    if is_overriding(kind) and ambient().overrides.by_classes:
        raise_overridden(x)
    if is_dispatching(kind) and ambient().overrides.by_operators:
        raise_operator(x)


# --- from a signal to a call --------------------------------------------------------------------------------------


def dispatched(signal: Overridden) -> Result:
    """What a public function returns that has caught `signal`: the result of `__torch_function__`."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  only it gives a frame at once
    if signal.frame is not frame:
        raise signal
    handler = handler_at(frame)
    args, kwargs = _arguments(handler, frame)
    del signal.frame  # else frame and signal keep each other, and the arguments, until garbage is collected
    signal.__traceback__ = None
    if signal.as_operator:
        return Operators.answer(handler, args, kwargs)
    result = _answer(handler.public, overriding_among(flat(args, kwargs)), args, kwargs)
    if result is NotImplemented and not handler.operator:
        raise _no_implementation(handler.public, flat(args, kwargs))
    return result


def _arguments(handler: Handler, frame: FrameType) -> tuple[Args, Kwargs]:
    """The arguments of a handler's call, by position and by keyword as PyTorch's function would pass them on.

    Its compiled functions do so as the call is written, those of `nn.functional` by keyword what has a default, also
    where it is not given.
    """
    code, values = frame.f_code, frame.f_locals
    function: Arg = handler.function
    names = code.co_varnames
    count, only_keywords = code.co_argcount, code.co_kwonlyargcount
    rest = count + only_keywords
    has_rest = bool(code.co_flags & CO_VARARGS)
    defaults = dict(zip(reversed(names[:count]), reversed(function.__defaults__ or ()), strict=False))
    in_full = _is_passed_in_full(handler.public)
    written = None if in_full or has_rest else written_arguments(frame.f_back)
    positional, keywords = (0, ()) if written is None else written
    first = count if has_rest else max(positional, code.co_posonlyargcount)
    args: list[Arg] = []
    kwargs: Kwargs = {}
    for at, name in enumerate(names[:count]):
        value = values[name]
        is_operand = written is None and not in_full and len(args) == at and _has_tensor(value)
        if at < first or is_operand or (name not in defaults and name not in keywords):
            args.append(value)
        elif name in keywords or value is not defaults[name] or (in_full and name not in _OWN_NAMES):
            kwargs[name] = value
    own: Kwargs = function.__kwdefaults__ or {}
    for name in names[count:rest]:
        if name not in own or values[name] is not own[name]:
            kwargs[name] = values[name]
    if has_rest:
        args += values[names[rest]]
    if code.co_flags & CO_VARKEYWORDS:
        kwargs |= values[names[rest + has_rest]]
    return tuple(args), kwargs


_OWN_NAMES = ("out", "axis")
"""Parameters that PyTorch's functions do not have, or take for another one."""
_COMPILED = frozenset({
    "adaptive_avg_pool1d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "bilinear", "channel_shuffle", "conv1d", "conv2d",
    "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_similarity", "gelu",
    "hardshrink", "linear", "logsigmoid", "native_channel_shuffle", "one_hot", "pairwise_distance", "pdist",
    "pixel_shuffle", "pixel_unshuffle", "prelu", "scaled_dot_product_attention", "softplus", "softshrink",
})  # fmt: skip
"""The functions of `nn.functional` that are compiled ones in PyTorch."""


def _is_passed_in_full(public: Arg) -> bool:
    home = own_form(getattr(public, "__module__", None) or "")
    return home == "weft.nn.functional" and public.__name__ not in _COMPILED


def _has_tensor(x: object) -> bool:
    return any(isinstance(part, TensorBase) or is_overriding(type(part)) for part in flat((x,), {}))


def flat(args: Iterable[Arg], kwargs: Kwargs) -> Iterator[object]:
    """Arguments, with the entries of lists and tuples."""
    for x in (*args, *kwargs.values()):
        if isinstance(x, LIST_OR_TUPLE):
            yield from x
        else:
            yield x


def overriding_among(relevant: Iterable[object]) -> list[Arg]:
    """One object of each overriding class, in the order in which they are asked: subclasses before their bases."""
    if not ambient().overrides.by_classes:
        return []
    return _one_of_each(x for x in relevant if is_overriding(type(x)))


def dispatching_among(relevant: Iterable[object]) -> list[Arg]:
    """The same of the classes that define `__torch_dispatch__`."""
    if not ambient().overrides.by_operators:
        return []
    return _one_of_each(x for x in relevant if is_dispatching(type(x)))


def _one_of_each(objects: Iterable[object]) -> list[Arg]:
    """The first object of each class, subclasses before their bases."""
    order: list[Arg] = []
    for x in objects:
        kind = type(x)
        if kind not in map(type, order):
            at = next((at for at, other in enumerate(order) if issubclass(kind, type(other))), len(order))
            order.insert(at, x)
    return order


@acts_for_user
def _answer(public: object, overriding: list[Arg], args: Args, kwargs: Kwargs) -> Result:
    """The first answer of the mode and of the overriding objects, or `NotImplemented`."""
    types = tuple(map(type, overriding))
    overrides = ambient().overrides
    if overrides.mode is not None:
        with setting(modes=overrides.modes[:-1]):
            result = overrides.mode.__torch_function__(public, types, args, kwargs)
        if result is not NotImplemented:
            return result
    for x in overriding:
        result = x.__torch_function__(public, types, args, kwargs)
        if result is not NotImplemented:
            return result
    return NotImplemented


def handle(public: object, relevant: Iterable[object], args: Args, kwargs: Kwargs) -> Result:
    """The result of `__torch_function__` of the mode or of `relevant` arguments; `TypeError` if none has one."""
    relevant = list(relevant)
    result = _answer(public, overriding_among(relevant), args, kwargs)
    if result is NotImplemented:
        raise _no_implementation(public, relevant)
    return result


def _no_implementation(public: object, relevant: Iterable[object]) -> ArgumentError:
    mode = ambient().overrides.mode
    kinds: list[type] = [type(x) for x in overriding_among(relevant)]
    return ArgumentError(
        f"no implementation found for '{name_of(public)}' on types that implement __torch_function__: {kinds}"
        + (f" nor in mode {mode}" if mode is not None else "")
    )


def name_of(public: Arg) -> str:
    """The name of a public function, such as `torch.Tensor.add`, or of a property's method."""
    if not hasattr(public, "__qualname__"):  # an operator of the user's
        return str(public)
    if public.__name__ in ("__get__", "__set__", "__delete__"):
        return f"{name_of(public.__self__.fget)}.{public.__name__}"
    return f"{public.__module__}.{public.__qualname__}".replace("weft", "torch", 1)


class setting:
    """Set fields of `Overrides` within a block; what else the block sets stays set."""

    def __init__(self, **fields: object) -> None:
        self._fields = fields

    def __enter__(self) -> None:
        self._old = old = ambient().overrides
        set_field(overrides=old.replaced(**self._fields))

    def __exit__(self, *_: object) -> None:
        set_field(overrides=self._old)


def push_mode(mode: object) -> None:
    """Let a mode be asked first, until `pop_mode`."""
    overrides = ambient().overrides
    set_field(overrides=overrides.replaced(modes=(*overrides.modes, mode)))


def pop_mode() -> Result:
    """End what `push_mode` began last; returns the mode."""
    overrides = ambient().overrides
    set_field(overrides=overrides.replaced(modes=overrides.modes[:-1]))
    return overrides.modes[-1]


# --- what overriding classes inherit ------------------------------------------------------------------------------

# no cell: filled when the library is imported
NOT_WRAPPED: list[Arg] = []
"""Methods of properties whose results are as they were stored, such as `Tensor.grad.__get__`."""


@acts_for_user
def by_default(cls: Arg, func: AnyCallable, types: Iterable[type], args: Args = (), kwargs: Arg = None) -> Result:
    """Call `func`, and make tensors among its results tensors of this class.

    `NotImplemented` if the class of an argument is no base of this one; `TypeError` for a function of PyTorch's, which
    has met this class and asks what to do.
    """
    _refuse_of_pytorch(func, types)
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    with setting(by_classes=False):
        result = func(*args, **(kwargs or {}))
        return result if func in NOT_WRAPPED else _converted(result, cls)


def _refuse_of_pytorch(func: object, types: Iterable[type]) -> None:
    """Raise `TypeError` if `func` is a function of PyTorch's, beside which this package has been imported."""
    owner = getattr(func, "__self__", func)  # a property, of a method such as `Tensor.grad.__get__`
    owner = getattr(owner, "__objclass__", getattr(owner, "fget", func))
    if is_module_of_pytorch(str(getattr(owner, "__module__", None))):
        own = next((f"{kind.__module__}.{kind.__qualname__}" for kind in types if issubclass(kind, TensorBase)), "")
        raise ArgumentError(
            f"{getattr(func, '__name__', func)}() of PyTorch does not take a tensor of Weft ({own}); make one of "
            "PyTorch's with torch.from_dlpack(x.detach()), or call Weft's function"
        )


def _class_of(x: object) -> AnyCallable:
    return type(x)


def _converted(result: Result, kind: type) -> Result:
    if isinstance(result, TensorBase) and not isinstance(result, kind):
        return result.as_subclass(kind)
    if isinstance(result, LIST_OR_TUPLE):
        parts = [_converted(x, kind) for x in result]
        make = _class_of(result)
        return make(*parts) if hasattr(result, "_fields") else make(parts)
    return result


def overridable(function: AnyCallable, public: object = None, *, only_modes: bool = False) -> AnyCallable:
    """A public function that can be overridden, of one that does nothing for it. `public` is what it stands for."""

    @wraps(function)
    def form(*args: object, **kwargs: object) -> Result:
        try:
            _require_none_overriding(args, kwargs)
            return function(*args, **kwargs)
        except Overridden as signal:
            return dispatched(signal)
        except UNTIL_USER as error:
            end_at_user(error)
            raise

    handles(form, form if public is None else public, only_modes=only_modes)
    return form


def _require_none_overriding(args: Args, kwargs: Kwargs) -> None:
    state = ambient().overrides
    if state.mode is not None:
        raise_overridden()
    for x in overriding_among(flat(args, kwargs)):
        require_not_overridden(x)
    if state.dispatchers:
        raise_operator()
    for x in dispatching_among(flat(args, kwargs)):
        require_not_overridden(x)


def separate(function: FunctionType) -> FunctionType:
    """A function that does the same, as a method of `Tensor` does what a function of the package does."""
    other = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    other.__dict__.update(function.__dict__)
    other.__kwdefaults__, other.__annotations__ = function.__kwdefaults__, function.__annotations__
    other.__doc__, other.__module__, other.__qualname__ = function.__doc__, function.__module__, function.__qualname__
    return other
