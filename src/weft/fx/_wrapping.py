"""Functions that are not looked into: while a program is traced, its modules have stand-ins under their names."""

from __future__ import annotations

import builtins
import functools
import sys
import threading
import weakref
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from weft._base.types import AnyCallable, Arg, AttributeValue, PyTree, Result
from weft.errors import OutOfRangeError, UnsupportedCallError
from weft.fx.proxy import Proxy
from weft.utils._pytree import tree_leaves

F = TypeVar("F", str, Callable[..., Any])

# no cell: only a tracer reads it
_WRAPPED: dict[tuple[int, str], dict[str, Any]] = {}
"""The globals of modules in which a name is wrapped, by their id and the name."""


def wrap(fn_or_name: F) -> F:
    """Let a function that the module calls be one node in graphs, instead of what it does with proxies.

    Takes the function or its name, as `wrap("len")`, at the top level of the module that calls it; also as a
    decorator. Returns its argument.
    """
    function: Any = fn_or_name
    if not isinstance(function, str) and not callable(function):
        raise OutOfRangeError(
            "Unsupported type for global function! Must be either a callable or string name, got "
            f"{type(function).__name__}"
        )
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    if frame.f_code.co_name != "<module>":
        raise UnsupportedCallError(
            "wrap must be called at the top level of a module: it is this module's name of the function that changes"
        )
    name = function if isinstance(function, str) else getattr(function, "__name__", type(function).__name__)
    _WRAPPED[id(frame.f_globals), name] = frame.f_globals
    return fn_or_name


def forget_with(function: FunctionType) -> None:
    """Forget what is wrapped among the globals of a function, once there is no such function any more."""
    keys = [key for key in list(_WRAPPED) if key[0] == id(function.__globals__)]
    if keys:
        weakref.finalize(function, lambda: [_WRAPPED.pop(key, None) for key in keys])


def first_proxy(*trees: PyTree) -> Proxy | None:
    """A proxy among arguments, if there is one."""
    return next((leaf for leaf in tree_leaves(trees) if isinstance(leaf, Proxy)), None)


def as_one_node(function: AnyCallable, name: str | None = None) -> AnyCallable:
    """A function whose calls with proxies are single nodes, wherever it is called from; `name` renames it."""

    @functools.wraps(function)
    def public(*args: Arg, **kwargs: Arg) -> Result:
        proxy = first_proxy(args, kwargs)
        if proxy is None:
            return function(*args, **kwargs)
        return proxy.tracer.create_proxy("call_function", public, args, kwargs)

    if name is not None:
        public.__name__ = public.__qualname__ = name
    return public


def _stand_in(function: AnyCallable) -> AnyCallable:
    """A function that is noted in the graph if it is called with a proxy."""

    @functools.wraps(function)
    def noted(*args: Arg, **kwargs: Arg) -> Result:
        proxy = first_proxy(args, kwargs)
        if proxy is None:
            return function(*args, **kwargs)
        result = proxy.tracer.create_proxy("call_function", function, args, kwargs)
        result.node.meta["is_wrapped"] = True
        return result

    return noted


class _Replaced:
    """A name of a module that has a stand-in, for as many blocks as need it: threads may trace at the same time."""

    def __init__(self, names: dict[str, AttributeValue], name: str, function: AnyCallable) -> None:
        self.function = function
        self.users = 0
        self._names, self._name = names, name
        self._previous = names.get(name, _ABSENT)  # a builtin is no global of the module
        names[name] = _stand_in(function)

    def revert(self) -> None:
        if self._previous is _ABSENT:
            self._names.pop(self._name, None)
        else:
            self._names[self._name] = self._previous


# no cell: set only while a program is traced
_REPLACED: dict[tuple[int, str], _Replaced] = {}
_LOCK = threading.Lock()


class Patches:
    """Stand-ins under names of modules, while a program is traced."""

    def __init__(self, modules: Iterable[ModuleType], functions: Iterable[Callable[..., object]]) -> None:
        self._modules = tuple(modules)
        of_modules = [value for module in self._modules for name, value in vars(module).items() if _is_public(name)]
        self._automatic = {id(value) for value in (*of_modules, *functions) if callable(value)}
        self._keys: list[tuple[int, str]] = []
        self._searched: set[int] = set()

    def __deepcopy__(self, memo: dict[int, object]) -> Patches:
        copied = Patches((), ())
        copied._modules, copied._automatic = self._modules, self._automatic
        return copied

    def search(self, names: dict[str, AttributeValue]) -> None:
        """Replace the functions that are always wrapped, such as those of `math`, among the globals of a function."""
        if id(names) in self._searched:
            return
        self._searched.add(id(names))
        with _LOCK:
            for name, value in list(names.items()):
                replaced = _REPLACED.get((id(names), name))
                if _is_public(name) and id(value if replaced is None else replaced.function) in self._automatic:
                    self._replace(names, name, value)

    def _replace(self, names: dict[str, AttributeValue], name: str, function: AnyCallable) -> None:
        key = id(names), name
        if key not in _REPLACED:
            _REPLACED[key] = _Replaced(names, name, function)
        _REPLACED[key].users += 1
        self._keys.append(key)

    @contextmanager
    def applied(self) -> Generator[None]:
        """A block in which everything that is wrapped has a stand-in."""
        try:
            with _LOCK:
                for (_, name), names in list(_WRAPPED.items()):
                    function = names.get(name, getattr(builtins, name, None))
                    if callable(function):
                        self._replace(names, name, function)
            for module in self._modules:
                self.search(vars(module))
            yield
        finally:
            with _LOCK:
                for key in self._keys:
                    # Stand-ins are shared by the tracers of all threads: the last one to end puts the function back.
                    _REPLACED[key].users -= 1
                    if not _REPLACED[key].users:
                        _REPLACED.pop(key).revert()
            self._keys, self._searched = [], set()


_ABSENT: Any = object()


def _is_public(name: str) -> bool:
    return not name.startswith("_")
