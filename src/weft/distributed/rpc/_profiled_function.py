"""Functions that are profiled where they run, since the caller is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper
from threading import get_ident
from typing import Any

from weft._lazy.realize import flush_pending
from weft.autograd.profiler import profile
from weft.distributed.rpc._profiled_call import ProfiledResult
from weft.distributed.rpc._service import Method, is_asynchronous
from weft.distributed.rpc._state import current_agent
from weft.futures import Future


class ProfiledFunction:
    """Calls a function, and returns its result as a `ProfiledResult`; `number` is that of the call at the caller.

    What its thread does is noted, and the calls that it makes. Of an asynchronous function, that is until its future is
    done.
    """

    def __init__(self, function: Callable[..., Any], number: int) -> None:
        update_wrapper(self, function, updated=())  # what a class has is not ours
        self._function, self._number = function, number

    def __reduce__(self) -> tuple[Any, ...]:
        return ProfiledFunction, (self._function, self._number)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = self._function
        if isinstance(function, Method):
            function = function.bound(current_agent())
        notes, thread = profile(record_shapes=True, profile_memory=True, with_flops=True), get_ident()

        def result_of(read: Callable[[], Any]) -> ProfiledResult:
            try:
                value = read()
            finally:
                notes.__exit__()
            return ProfiledResult(value, self._number, [e for e in notes.function_events if e.thread == thread])

        notes.__enter__()
        try:
            result = function(*args, **kwargs)
            flush_pending()
        except BaseException:
            notes.__exit__()
            raise
        if not is_asynchronous(function) or not isinstance(result, Future):
            return result_of(lambda: result)
        self._wrapped_async_rpc_function = function  # how `call_function` knows that the result comes later
        later: Future[Any] = Future()
        result.add_done_callback(lambda done: later._settle(partial(result_of, done.value)))
        return later


_ProfiledFunction = ProfiledFunction
"""As which the package has it, which loads the profiler no earlier."""
