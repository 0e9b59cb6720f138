"""How a call ends up at `__torch_function__`, at no cost for calls that do not.

What must not be read by the library (the value of a tensor whose class overrides functions; the ambient record while a
mode of `weft.overrides` is on) raises `Overridden` when a public function reads it. That function's handler then calls
`__torch_function__` in its stead. So calls on plain tensors make no test: a `try` that succeeds costs nothing.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

from weft._base.types import AnyCallable, Arg


@dataclass(frozen=True, slots=True)
class Overrides:
    """Who is asked before a public function runs: the modes, the innermost last, and the classes of arguments.

    `dispatchers` are the modes that are asked before an operator of PyTorch's runs, after all of the others;
    `by_operators` is whether the classes of its arguments are.
    """

    modes: tuple[Any, ...] = ()
    by_modes: bool = True
    by_classes: bool = True
    dispatchers: tuple[Any, ...] = ()
    by_operators: bool = True

    @property
    def mode(self) -> Arg:
        """The mode that is asked first, or None."""
        return self.modes[-1] if self.modes and self.by_modes else None

    @property
    def is_by_modes(self) -> bool:
        """Whether a mode of either kind is asked."""
        return bool(self.dispatchers) or self.mode is not None

    def replaced(self, **fields: object) -> Overrides:
        """The same with other fields."""
        return replace(self, **fields)


class Overridden(Exception):
    """Raised within a public function that is overridden; `frame` is that of the function that handles it.

    `as_operator` if it is to be handled by `__torch_dispatch__`, and not by `__torch_function__`.
    """

    def __init__(self, frame: FrameType, as_operator: bool = False) -> None:
        super().__init__(f"the function is overridden by __torch_{'dispatch' if as_operator else 'function'}__")
        self.frame = frame
        self.as_operator = as_operator


@dataclass(frozen=True, slots=True, eq=False)
class Handler:
    """A function that catches `Overridden`.

    public     what `__torch_function__` gets: the function itself, or the `__get__` of a property
    function   the one that has the parameters
    operator   whether it is a special method, which returns `NotImplemented` instead of raising `TypeError`
    only_modes whether classes of arguments do not override it
    only_operator  whether it is a row that is not public, which only `__torch_dispatch__` sees
    """

    public: AnyCallable
    function: FunctionType
    operator: bool = False
    only_modes: bool = False
    only_operator: bool = False


# no cell: filled when the library is imported
_HANDLERS: dict[int, Handler] = {}  # by the id of the code: equal code may belong to different functions
# no cell: filled when the library is imported
_USERS: set[int] = set()  # ids of codes that call public functions as users do
_FOLDERS = ("_base", "ops", "_lazy", "_autograd", "_tensor")
_PACKAGE = str(Path(__file__).resolve().parent.parent)
_INSIDE = (*(f"{_PACKAGE}/{name}/" for name in _FOLDERS), f"{_PACKAGE}/_dispatch.py", "<weft", contextlib.__file__)


def handles(
    function: Any, public: Any, *, operator: bool = False, only_modes: bool = False, only_operator: bool = False
) -> None:
    """Let a function, which calls `dispatched` if it catches `Overridden`, stand for a public one."""
    function.__code__ = function.__code__.replace()  # a code of its own
    _HANDLERS[id(function.__code__)] = Handler(public, function, operator, only_modes, only_operator)


def is_handled(function: AnyCallable) -> bool:
    """Whether `handles` was called for a function."""
    return id(getattr(function, "__code__", None)) in _HANDLERS


def has_handler(function: object) -> bool:
    """Whether a function catches `Overridden`."""
    return isinstance(function, FunctionType) and not _CALLS.isdisjoint(function.__code__.co_names)


_CALLS = {"dispatched", "_dispatched"}


def acts_for_user(function: AnyCallable) -> AnyCallable:
    """Decorate a function of the library of which users see the functions that it calls."""
    assert isinstance(function, FunctionType)
    _USERS.add(id(function.__code__))
    return function


def handler_at(frame: FrameType) -> Handler:
    """The handler that a frame runs."""
    return _HANDLERS[id(frame.f_code)]


def raise_overridden(argument: object = None) -> None:
    """End the public function that the user has called, if it can be overridden: by a mode, or by its argument."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    outermost: FrameType | None = None
    while frame is not None and _is_inside(frame.f_code):
        handler = _HANDLERS.get(id(frame.f_code))
        if handler is None or handler.only_operator or (argument is not None and handler.only_modes):
            outermost = None
        else:
            outermost = frame
        frame = frame.f_back
    if outermost is not None and (argument is None or any(x is argument for x in _arguments(outermost))):
        raise Overridden(outermost)


class Operators:
    """What is known of PyTorch's operators, which stands in a higher layer, and is set when it is first needed."""

    is_one: Callable[[Handler], bool]
    """Whether a public function is an operator of PyTorch's, or is decomposed into some."""
    answer: Callable[[Handler, tuple[Any, ...], dict[str, Any]], Any]
    """What `__torch_dispatch__` returns for a call of a public function."""
    derive: Callable[[Any, Any, tuple[Any, ...]], tuple[Any, ...]]
    """The values that modes give for a derivative, from the signature that it is one of, its own, and its inputs."""


_OF_ROWS = ("<weft op.", f"{_PACKAGE}/_tensor/fast_path.py")
"""Where the functions of rows are written."""


def raise_operator(argument: object = None) -> None:
    """End the operator that is to be handled by `__torch_dispatch__`: of a mode, or of its argument.

    It is the outermost public function that is an operator of PyTorch's. If none is, it is the innermost row.
    """
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    operator: FrameType | None = None
    row: FrameType | None = None
    while frame is not None and _is_inside(frame.f_code):
        handler = _HANDLERS.get(id(frame.f_code))
        if handler is not None and (argument is None or any(x is argument for x in _arguments(frame))):
            if Operators.is_one(handler):
                operator = frame
            elif row is None and (handler.only_operator or frame.f_code.co_filename.startswith(_OF_ROWS)):
                row = frame
        frame = frame.f_back
    operator = operator or row
    if operator is not None:
        raise Overridden(operator, as_operator=True)


def _arguments(frame: FrameType) -> Iterator[Any]:
    """The arguments that a frame was called with, and the entries of lists and tuples among them."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    has_rest = bool(code.co_flags & CO_VARARGS)
    for at, name in enumerate(code.co_varnames[: count + has_rest + bool(code.co_flags & CO_VARKEYWORDS)]):
        x: Any = frame.f_locals.get(name)
        is_rest = has_rest and at == count and isinstance(x, tuple)  # a wrapper may use the name for something else
        parts: list[Any] = [*x] if is_rest else [*x.values()] if isinstance(x, dict) else [x]
        for part in parts:
            yield part
            if isinstance(part, list | tuple):
                yield from part


CO_VARARGS, CO_VARKEYWORDS = 0x04, 0x08
"""Flags of code. `inspect` has names for them, and is slow to import."""


def _is_inside(code: CodeType) -> bool:
    return code.co_filename.startswith(_INSIDE) and id(code) not in _USERS
