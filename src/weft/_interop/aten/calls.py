"""Calls of operators, and who is asked before them: modes, and the classes of arguments, by `__torch_dispatch__`."""

from __future__ import annotations

from collections.abc import Iterable

from weft._base.state import ambient, set_field
from weft._base.types import AnyCallable, Arg, Args, Kwargs, Result
from weft._interop.aten.overloads import as_passed, bind, compute, refuse, resolve
from weft._tensor.overriding import dispatching_among, flat, handle, overriding_among, setting
from weft.errors import ArgumentError
from weft.ops._aten import AtenOverload, AtenPacket, aten


class OwnOverload(AtenOverload):
    """An operator that PyTorch does not have under this name, or not with these arguments, by the function it is."""

    def __init__(self, name: str, function: AnyCallable) -> None:
        super().__init__(getattr(aten, name), "default")
        self._function = function

    def __call__(self, *args: Arg, **kwargs: Arg) -> Result:
        """Compute it, or let `__torch_dispatch__`."""
        if is_dispatched(args, kwargs):
            return dispatch(self, args, kwargs)
        return self._function(*args, **kwargs)


def is_dispatched(args: Args, kwargs: Kwargs) -> bool:
    """Whether a mode, or the class of an argument, is to be asked before an operator."""
    return bool(ambient().overrides.dispatchers) or bool(dispatching_among(flat(args, kwargs)))


def dispatch(func: AtenOverload, args: Args, kwargs: Kwargs) -> Result:
    """The first answer of the innermost mode, which is off meanwhile, and of the arguments' classes."""
    overrides = ambient().overrides
    objects = dispatching_among(flat(args, kwargs))
    types = tuple(map(type, objects))
    if overrides.dispatchers:
        *outer, mode = overrides.dispatchers
        with setting(dispatchers=tuple(outer)):
            result = mode.__torch_dispatch__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    for x in objects:
        result = type(x).__torch_dispatch__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    raise ArgumentError(
        f"Multiple dispatch failed for 'torch.ops.{func}'; all __torch_dispatch__ handlers returned NotImplemented: "
        + ", ".join(map(str, types))
    )


def call_packet(packet: AtenPacket, args: Args, kwargs: Kwargs) -> Result:
    """Compute the overload that takes these arguments, as `call` does."""
    match = resolve(packet, args, kwargs)
    return refuse(packet, args, kwargs) if match is None else _call(*match)


def call(overload: AtenOverload, args: Args, kwargs: Kwargs) -> Result:
    """Compute an overload, unless it is overridden or dispatched."""
    bound = bind(overload, args, kwargs)
    return refuse(overload, args, kwargs) if bound is None else _call(overload, *as_passed(overload, bound))


def _call(overload: AtenOverload, args: Args, kwargs: Kwargs) -> Result:
    relevant = list(flat(args, kwargs))
    if ambient().overrides.mode is not None or overriding_among(relevant):
        return handle(overload, relevant, args, kwargs)
    if is_dispatched(args, kwargs):
        return dispatch(overload, args, kwargs)
    return compute(overload, args, kwargs)


def modes() -> tuple[Arg, ...]:
    """The modes, the innermost last."""
    return ambient().overrides.dispatchers


def innermost_mode(kind: type) -> Arg:
    """The innermost mode of a class, or None."""
    return next((mode for mode in reversed(modes()) if isinstance(mode, kind)), None)


def set_modes(stack: Iterable[Arg]) -> None:
    """Let these modes be asked, from now on."""
    set_field(overrides=ambient().overrides.replaced(dispatchers=tuple(stack)))
