"""Functions that are profiled where they run, since the caller is."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial, update_wrapper
from threading import get_ident

from weft._base.types import AnyCallable, Arg, Result
from weft._lazy.flushing import flush_pending
from weft.distributed.rpc._profiled_call import ProfiledResult
from weft.distributed.rpc._service import Method, is_asynchronous
from weft.distributed.rpc._state import current_agent
from weft.futures import Future, is_future
from weft.profiler._block import profile


class ProfiledFunction:
    """Calls a function, and returns its result as a `ProfiledResult`; `number` is that of the call at the caller.

    What its thread does is noted, and the calls that it makes. Of an asynchronous function, that is until its future is
    done.
    """

    def __init__(self, function: AnyCallable, number: int) -> None:
        update_wrapper(self, function, updated=())  # what a class has is not ours
        self._function, self._number = function, number

    def __reduce__(self) -> tuple[object, ...]:
        return ProfiledFunction, (self._function, self._number)

    def __call__(self, *args: Arg, **kwargs: Arg) -> Result:
        function = self._function
        if isinstance(function, Method):
            function = function.bound(current_agent())
        notes, thread = profile(record_shapes=True, profile_memory=True, with_flops=True), get_ident()

        def with_events(value: object) -> ProfiledResult:
            events = [event for event in notes.function_events if event.thread == thread]
            return ProfiledResult(value, self._number, events)

        @contextmanager
        def noting_errors() -> Generator[None]:
            try:
                yield
            except BaseException as error:
                notes.__exit__()
                error._with_events = with_events  # pyright: ignore[reportAttributeAccessIssue]  # for `pack_error`
                raise

        def result_of(done: Future[Result]) -> ProfiledResult:
            with noting_errors():
                value = done.value()
            notes.__exit__()
            return with_events(value)

        notes.__enter__()
        with noting_errors():
            result = function(*args, **kwargs)
            flush_pending()
        if is_asynchronous(function):
            self._wrapped_async_rpc_function = function  # how `call_function` knows that the result comes later
        if is_asynchronous(function) and is_future(result):
            later: Future[Result] = Future()
            result.add_done_callback(lambda done: later.settle(partial(result_of, done)))
            return later
        notes.__exit__()
        return with_events(result)


_ProfiledFunction = ProfiledFunction
"""As which the package has it, which loads the profiler no earlier."""
