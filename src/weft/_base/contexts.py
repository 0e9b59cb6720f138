"""Context managers that are decorators, too."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from functools import partial, wraps
from typing import Any, Self, TypeVar, cast

from weft._base.types import AnyCallable, Arg, Result
from weft.errors import OptionError

F = TypeVar("F", bound=Callable[..., Any])


def context_decorator(ctx: Any, func: AnyCallable) -> AnyCallable:
    """The function, in a context while it runs; the generators of a generator function, while they run.

    `ctx` is a context manager, or a function that makes one for each call. `RuntimeError` for a class.
    """
    if inspect.isclass(func):
        raise OptionError(
            f"Cannot decorate classes: it is ambiguous which methods of {func.__name__} should be in the context; "
            "decorate each of them"
        )
    make: Callable[[], AbstractContextManager[Any]] = ctx if callable(ctx) else lambda: ctx
    if inspect.isgeneratorfunction(func):
        return _stepwise(func, make)

    @wraps(func)
    def call(*args: Arg, **kwargs: Arg) -> Result:
        with make():
            return func(*args, **kwargs)

    return call


def _stepwise(function: AnyCallable, make: Callable[[], AbstractContextManager[Any]]) -> AnyCallable:
    """Wrap a generator function such that its generators are in the context only while they run."""

    @wraps(function)
    def steps(*args: Arg, **kwargs: Arg) -> Generator[Any, Any, Any]:
        source = function(*args, **kwargs)
        resume = partial(next, source)
        while True:
            try:
                with make():
                    item = resume()
            except StopIteration as stop:
                return stop.value
            try:
                sent = yield item
            except BaseException as error:  # passed to the source, which may handle it, also `GeneratorExit`
                resume = partial(source.throw, error)
            else:
                resume = partial(source.send, sent)

    return steps


class DecoratorContextManager:
    """The base of context managers that decorate functions; each call is in a context of its own, made by `clone`."""

    def __call__(self, orig_func: F) -> F:
        if not inspect.isclass(orig_func):
            return cast("F", context_decorator(self.clone, orig_func))
        warnings.warn(
            "Decorating classes is deprecated: only their instances are made in the context. Decorate functions or "
            "methods, such as `__init__`",
            FutureWarning,
            stacklevel=2,
        )

        @wraps(orig_func)
        def made(*args: Arg, **kwargs: Arg) -> Result:
            with self.clone():
                return orig_func(*args, **kwargs)

        return cast("F", made)

    def __enter__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define __enter__")

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not define __exit__")

    def clone(self) -> Any:
        """Another such context manager; to be overridden where the class takes arguments."""
        return type(self)()


class NoParamDecoratorContextManager(DecoratorContextManager):
    """One that decorates with or without parentheses."""

    def __new__(cls, orig_func: Any = None) -> Self | Any:
        return super().__new__(cls) if orig_func is None else cls()(orig_func)
